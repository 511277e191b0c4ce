// Limits: of a project for each model and for all together, and of a key; and the form that changes them.
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { said } from "../state";
import { Failure, Line, wordsOf } from "../views/text";
import { Dialog, Pages } from "./pages";
import { type Limits, type Numbers, changeLimits, limits } from "./requests";

const LIMITS: [string, string][] = [
  ["max_requests_per_1_minute", "Requests a minute"],
  ["max_tokens_per_1_minute", "Tokens a minute"],
  ["max_requests_per_1_month", "Requests a month"],
  ["max_tokens_per_1_month", "Tokens a month"],
  ["max_parallel_responses", "At a time"],
];

export function ProjectLimits({ project, isOver }: { project: string; isOver: boolean }) {
  return (
    <section>
      <h2>Limits</h2>
      <Pages
        what="Limits"
        load={(after, signal) => limits(project, after, signal)}
        head={
          <tr>
            <th scope="col">Model</th>
            {LIMITS.map(([, title]) => (
              <th scope="col" class="number">
                {title}
              </th>
            ))}
            <th scope="col">
              <span class="unshown">Actions</span>
            </th>
          </tr>
        }
        row={(limit, again) => <Row key={limit.id} project={project} limit={limit} isOver={isOver} onChanged={again} />}
        empty={<p>No limits.</p>}
      />
    </section>
  );
}

interface Shown {
  project: string;
  limit: Limits;
  isOver: boolean;
  onChanged: () => void;
}

function Row({ project, limit, isOver, onChanged }: Shown) {
  const [changing, setChanging] = useState(false);
  const isOfAll = limit.model === "all";
  const name = isOfAll ? "all models together" : limit.model;
  return (
    <tr>
      <th scope="row">{isOfAll ? "all together" : <Line text={limit.model} />}</th>
      {LIMITS.map(([field]) => {
        const number = limit[field];
        return <td class="number">{typeof number === "number" ? number.toLocaleString("en") : "–"}</td>;
      })}
      <td class="act">
        {!isOver && (
          <button aria-label={`Change the limits of ${name}`} onClick={() => setChanging(true)}>
            Change…
          </button>
        )}
        {changing && (
          <LimitsForm
            title={
              <>
                Limits of <Line text={name} />
              </>
            }
            hint={isOfAll ? "Where one is empty, that of the settings holds, if there is one." : "Where one is empty, there is none."}
            known={limit}
            save={(_, changed) => changeLimits(project, limit.id, changed)}
            onDone={onChanged}
            onClose={() => setChanging(false)}
          />
        )}
      </td>
    </tr>
  );
}

interface Changing {
  title: ComponentChildren;
  hint: string;
  known: Record<string, number | string | null>;
  /** Gets all that there are then, and those that are others than before: null for one that is taken away. */
  save: (all: Numbers, changed: Numbers) => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}

/** A form with a field for each limit. */
export function LimitsForm({ title, hint, known, save, onDone, onClose }: Changing) {
  const first = useRef<HTMLInputElement>(null);
  const before = Object.fromEntries(LIMITS.map(([field]) => [field, String(known[field] ?? "")]));
  const [texts, setTexts] = useState(before);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const changed = LIMITS.filter(([field]) => texts[field] !== before[field]);
  async function change(event: SubmitEvent) {
    event.preventDefault();
    const wrong = changed.find(([field]) => !/^[0-9]*$/.test(texts[field] ?? "") || !Number.isFinite(Number(texts[field])));
    if (wrong) {
      setError(`${wrong[1]} should be a whole number in digits, or empty.`);
      return;
    }
    setBusy(true);
    setError("");
    try {
      const numbers: Numbers = Object.fromEntries(LIMITS.map(([field]) => [field, texts[field] ? Number(texts[field]) : null]));
      const all = Object.fromEntries(Object.entries(numbers).filter(([, number]) => number !== null));
      await save(all, Object.fromEntries(changed.map(([field]) => [field, numbers[field] ?? null])));
      said.value = "The limits are changed.";
      onDone();
      onClose();
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <Dialog label="limits" onClose={onClose} first={() => first.current}>
      <form onSubmit={change}>
        <h2 id="limits">{title}</h2>
        <p class="hint">{hint} 0 lets nothing through.</p>
        {LIMITS.map(([field, words], index) => (
          <label class="field">
            <span>{words}</span>
            <input
              ref={index ? null : first}
              inputMode="numeric"
              autocomplete="off"
              placeholder="none"
              value={texts[field]}
              onInput={(event) => setTexts({ ...texts, [field]: event.currentTarget.value.trim() })}
            />
          </label>
        ))}
        <Failure error={error} />
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" disabled={busy || !changed.length}>
            Change
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
