// Conversations as files: one is saved, and what was saved is brought back.
import { useEffect, useRef, useState } from "preact/hooks";
import { exported, markdownOf, save } from "../export";
import { type Imported, imported, nothing } from "../import";
import { said } from "../state";
import { type Turn, type WholeTree, isWhole } from "../wire";
import { ChooseFiles } from "./dialog";
import { useDoing } from "./loading";
import { Failure, Line, count } from "./text";
import { wholeOf } from "./turn";

/** Work that takes a while, and ends when it is stopped, or with what shows it; `so` is how far it is, null before it begins. */
function useWork<T>() {
  const [so, setSo] = useState<T | null>(null);
  const { busy, error, attempt } = useDoing();
  const at = useRef<AbortController | null>(null);
  useEffect(() => () => at.current?.abort(), []);
  function begin(work: (signal: AbortSignal, tell: (so: T) => void) => Promise<void>): Promise<void> {
    const { signal } = (at.current = new AbortController());
    setSo(null);
    return attempt(() => work(signal, (so) => signal.aborted || setSo(so)));
  }
  return { so, busy, error, begin, stop: () => at.current?.abort() };
}

/** Buttons that save a tree as lines of JSON, and the turns that are read as a text. */
export function Export({ tree, title, turns }: { tree: WholeTree; title: string; turns: Turn[] }) {
  const { so, busy, error, begin, stop } = useWork<{ done: number; of: number }>();
  const [file, setFile] = useState({ missing: 0, isWhole: true });
  const start = () =>
    begin(async (signal, tell) => {
      const { lines, missing } = await exported(tree, signal, (done) => tell({ done, of: tree.turns.length }));
      save(`${tree.id}.jsonl`, lines.map((line) => `${line}\n`));
      setFile({ missing, isWhole: isWhole(tree) });
      said.value = "Exported";
    });
  const write = () =>
    begin(async (signal, tell) => {
      const parts = [`# ${title}\n`];
      for (const { id } of turns) {
        const { answer, items } = await wholeOf(id, signal);
        tell({ done: parts.push(markdownOf([...items, ...answer.output])) - 1, of: turns.length });
      }
      save(`${turns.at(-1)?.id}.md`, [parts.join("\n")]);
      setFile({ missing: 0, isWhole: true });
      said.value = "Exported";
    });
  const { missing } = file;
  return (
    <>
      {busy ? <button onClick={stop}>Stop{so && ` at ${so.done} of ${so.of}`}</button> : (
        <>
          <button onClick={start} title="Every turn, as lines of JSON that can be imported">Export</button>
          <button onClick={write} title="The turns that are read here, as a text for people">Markdown</button>
        </>
      )}
      {missing > 0 && (
        <p class="outcome hint" role="status">
          Exported without {count(missing, "turn")} that {missing === 1 ? "is" : "are"} still running or gone.
        </p>
      )}
      {!file.isWhole && (
        <p class="outcome hint" role="status">
          Branches that aren't shown here are not in the file: <code>harmonium export {tree.id}</code> has them.
        </p>
      )}
      <Failure error={error} />
    </>
  );
}

export function Import({ onDone }: { onDone: () => void }) {
  const { so, busy, error, begin, stop } = useWork<Imported>();
  function start(file: File) {
    begin(async (signal, tell) => {
      try {
        await imported(file, signal, tell);
        said.value = "Imported";
      } finally {
        onDone();
      }
    });
  }
  return (
    <>
      {busy ? <button onClick={stop}>Stop</button> : (
        <ChooseFiles words="Import" title="Import the conversations of an exported file" name="An exported file" accept=".jsonl,.json,.txt" onFiles={([file]) => file && start(file)} />
      )}
      {(busy || so) && <Outcome so={so ?? nothing} busy={busy} />}
      {error && (
        <div class="outcome">
          <Failure error={error} />
        </div>
      )}
    </>
  );
}

function Outcome({ so, busy }: { so: Imported; busy: boolean }) {
  return (
    <div class="outcome hint">
      <p role="status">
        {busy && "So far: "}
        {count(so.came, "turn")} imported, {so.kept.toLocaleString("en")} already here
        {so.deleted > 0 && `, ${so.deleted.toLocaleString("en")} deleted here and left out`}
        {so.refused > 0 && `, ${so.refused.toLocaleString("en")} refused`}.
      </p>
      {so.why.length > 0 && (
        <ul>
          {so.why.map((each) => <li><Line text={each} /></li>)}
        </ul>
      )}
    </div>
  );
}
