// The page: who may look, where it is, and what is above all views.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { administers as mayAdminister } from "../administration/requests";
import { Administration } from "../administration/view";
import { ApiError, NOTHING, isDemo, queryOf, trees } from "../api";
import { administers, askOthers, forgetKey, key, leave, locked, nextTheme, place, refused, said, theme, toList, toNew, useKey } from "../state";
import { NewConversation } from "./begin";
import { Compare } from "./compare";
import { Dialog } from "./dialog";
import { List, finding, moveInList, resetList } from "./list";
import { useDoing } from "./loading";
import { Failure, Loading, Lost, Text, wordsOf } from "./text";
import { TreeView, compared } from "./tree";
import { forgetRead } from "./turn";

/** Ask for the least there is, to learn whether the key opens anything, and what. Throws ApiError. */
async function knock(): Promise<void> {
  try {
    await trees(queryOf(NOTHING, null, 1));
    administers.value = false;
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 403 && key.value && (await mayAdminister()))) throw error;
    administers.value = true;
  }
}

export function App() {
  const [error, setError] = useState("");
  async function begin() {
    setError("");
    try {
      await knock();
      locked.value = false;
    } catch (caught) {
      if (!(caught instanceof ApiError && caught.status === 401)) setError(wordsOf(caught));
      else if (locked.value === null && (await askOthers())) await begin();
      else locked.value = true;
    }
  }
  useEffect(() => void begin(), []);
  useEffect(() => {
    if (!locked.value) return;
    setError("");
    resetList();
    forgetRead();
    compared.value = null;
  }, [locked.value]);
  return (
    <>
      <Bar />
      {error ? (
        <Lost title="Can't open the console" error={error} again={begin} />
      ) : locked.value === null && place.value.view !== "tree" ? (
        <main class="lost">
          <Loading what="the console" />
        </main>
      ) : locked.value ? <Lock /> : (
        <>
          <View key={key.value} />
          {!administers.value && <Keys />}
        </>
      )}
      <div class="unshown" aria-live="polite">
        {said.value}
      </div>
    </>
  );
}

function View() {
  const at = place.value;
  if (administers.value) return <Administration />;
  if (at.view === "tree") return <TreeView id={at.id} words={at.words} />;
  if (at.view === "compare") return <Compare key={`${at.left} ${at.right}`} left={at.left} right={at.right} />;
  if (at.view === "new") return <NewConversation />;
  return <List />;
}

const KEYS = `/            find words or an id
n            new conversation
?            these keys
↑ ↓          in the list and the graph: by rows
← →          in the graph: to the turn before, to the next one; in a bar: by buttons
Ctrl+Enter   send`;

/** Keys that do something wherever the focus is, but where somebody writes or is asked. */
function Keys() {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    function press(event: KeyboardEvent) {
      const { key, target } = event;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (document.querySelector("dialog[open]") || (target as Element).closest("input, select, textarea")) return;
      const step = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : 0;
      if (key === "?") setOpen(true);
      else if (key === "n") location.hash = toNew;
      else if (key === "/") {
        location.hash = toList;
        finding.value = true;
      } else if (!step || !moveInList(step)) return;
      event.preventDefault();
    }
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  if (!isOpen) return null;
  return (
    <Dialog title="Keys" onClose={() => setOpen(false)}>
      <Text text={KEYS} mono />
      <button autofocus onClick={() => setOpen(false)}>Close</button>
    </Dialog>
  );
}

/** Two lanes that were one: the mark of the console. */
function Mark() {
  return (
    <svg class="mark" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <path d="M6 3V17M6 9C6 13 14 9 14 14V17" />
      <circle cx="6" cy="4" r="2.2" />
      <circle cx="14" cy="16" r="2.2" />
      <circle cx="6" cy="16" r="2.2" />
    </svg>
  );
}

function Bar() {
  const [demo, setDemo] = useState(false);
  useEffect(() => void isDemo().then(setDemo, () => {}), []); // what is wrong is said below
  return (
    <header class="bar">
      <a class="name" href={toList} aria-label={administers.value ? "harmonium: projects" : "harmonium: conversations"}>
        <Mark />
        harmonium
      </a>
      {demo && <span class="demo">Demo engine: no real model</span>}
      <span class="space" />
      <button class="quiet" onClick={nextTheme} title="Light, dark, or as the system has it">
        Theme: {theme.value}
      </button>
      {key.value && !locked.value && (
        <button class="quiet" onClick={leave}>Forget the key</button>
      )}
    </header>
  );
}

function Lock() {
  const [value, setValue] = useState("");
  const { busy, error, attempt } = useDoing();
  const box = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => box.current?.focus(), []);
  function open(event: SubmitEvent) {
    event.preventDefault();
    void attempt(async () => {
      if (!/^[\x21-\x7e]+$/.test(value.trim()))
        throw new Error("An API key has only ASCII letters, digits and punctuation. Did you paste all of it?");
      refused.value = "";
      useKey(value.trim());
      try {
        await knock();
      } catch (caught) {
        forgetKey();
        throw caught;
      }
      locked.value = false;
    });
  }
  return (
    <main class="lock">
      <form onSubmit={open}>
        <h1>Open the console</h1>
        <p>Enter an API key to see its conversations, or an administrator's key to see its projects. Open tabs of the console share the key until the last one is closed.</p>
        <label>
          <span>API key</span>
          <input
            ref={box}
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={value}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
        </label>
        {(error || refused.value) && <Failure error={error || refused.value} />}
        <button type="submit" class="main" disabled={busy || !value.trim()}>
          {busy ? "Opening…" : "Open"}
        </button>
      </form>
    </main>
  );
}
