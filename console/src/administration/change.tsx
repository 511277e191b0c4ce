// What of a project can be changed: its name, and how much it is served beside others.
import { useRef, useState } from "preact/hooks";
import { said } from "../state";
import { Failure, wordsOf } from "../views/text";
import { Dialog } from "./pages";
import { type ChangedProject, type Project, changeProject } from "./requests";

interface Changing {
  project: Project;
  onDone: () => void;
  onClose: () => void;
}

export function ChangeProject({ project, onDone, onClose }: Changing) {
  const box = useRef<HTMLInputElement>(null);
  const before = String(project.weight ?? "");
  const [name, setName] = useState(project.name);
  const [weight, setWeight] = useState(before);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const wished: ChangedProject = {};
  if (name !== project.name) wished.name = name;
  if (weight.trim() !== before) wished.weight = weight.trim() ? Number(weight) : null;
  async function change(event: SubmitEvent) {
    event.preventDefault();
    if (typeof wished.weight === "number" && !Number.isFinite(wished.weight)) {
      setError("The weight should be a number such as 3 or 0.5, or empty.");
      return;
    }
    setBusy(true);
    setError("");
    try {
      await changeProject(project.id, wished);
      said.value = "The project is changed.";
      onDone();
      onClose();
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <Dialog label="change-project" onClose={onClose} first={() => box.current}>
      <form onSubmit={change}>
        <h2 id="change-project">Change the project</h2>
        {!project.static && (
          <label class="field">
            <span>Name</span>
            <input ref={box} value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
        )}
        <label class="field">
          <span>Weight</span>
          <input
            ref={project.static ? box : null}
            inputMode="decimal"
            autocomplete="off"
            placeholder="that of the settings, else 1"
            value={weight}
            onInput={(event) => setWeight(event.currentTarget.value)}
          />
        </label>
        <p class="hint">Where requests wait for room, a project with a weight of 3 gets three times as many tokens as one with 1.</p>
        <Failure error={error} />
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" disabled={busy || !Object.keys(wished).length || !name.trim()}>
            Change
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
