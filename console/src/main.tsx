// Where the console begins.
import "./style.css";
import { render } from "preact";
import { App } from "./views/app";

const root = document.getElementById("console");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
