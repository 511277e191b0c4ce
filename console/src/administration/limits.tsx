// Limits: of a project for each model and for all together, and of a key; and the form that changes them.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Asking, Field, Opens } from "../views/dialog";
import { Line } from "../views/text";
import { Cell, Name, Pages } from "./pages";
import { type Limits, type Numbers, changeLimits, limits } from "./requests";

const LIMITS: [string, string][] = [
  ["max_requests_per_1_minute", "Requests a minute"],
  ["max_tokens_per_1_minute", "Tokens a minute"],
  ["max_requests_per_1_month", "Requests a month"],
  ["max_tokens_per_1_month", "Tokens a month"],
  ["max_parallel_responses", "At a time"],
];

interface Shown {
  project: string;
  isOver: boolean;
}

export function ProjectLimits({ project, isOver }: Shown) {
  return (
    <section>
      <h2>Limits</h2>
      <Pages
        what="Limits"
        titles={["Model"]}
        numbers={LIMITS.map(([, title]) => title)}
        acts
        load={(after, signal) => limits(project, after, signal)}
        row={(limit, again) => <Row key={limit.id} project={project} limit={limit} isOver={isOver} onDone={again} />}
        empty={<p>No limits.</p>}
      />
    </section>
  );
}

function Row({ project, limit, isOver, onDone }: Shown & { limit: Limits; onDone: () => void }) {
  const isOfAll = limit.model === "all";
  const name = isOfAll ? "all models together" : limit.model;
  return (
    <tr>
      <Name text={name} />
      {LIMITS.map(([field]) => <Cell number={limit[field]} />)}
      <td class="act">
        {!isOver && (
          <Opens words="Change…" name={`Change the limits of ${name}`}>
            {(close) => (
              <LimitsForm
                name={name}
                hint={isOfAll ? "An empty limit is the one of the settings, if there is one." : "An empty limit is no limit."}
                known={limit}
                save={(_, changed) => changeLimits(project, limit.id, changed)}
                onDone={onDone}
                onClose={close}
              />
            )}
          </Opens>
        )}
      </td>
    </tr>
  );
}

interface Changing {
  name: string;
  hint: ComponentChildren;
  known: Record<string, number | string | null>;
  /** Gets all that there are then, and those that are others than before: null for one that is taken away. */
  save: (all: Numbers, changed: Numbers) => Promise<unknown>;
  onDone: () => void;
  onClose: () => void;
}

/** A form with a field for each limit. */
export function LimitsForm({ name, hint, known, save, ...rest }: Changing) {
  const before = Object.fromEntries(LIMITS.map(([field]) => [field, String(known[field] ?? "")]));
  const [texts, setTexts] = useState(before);
  const changed = LIMITS.filter(([field]) => texts[field] !== before[field]);
  async function change() {
    const wrong = changed.find(([field]) => !/^[0-9]*$/.test(texts[field] ?? "") || !Number.isFinite(Number(texts[field])));
    if (wrong) throw new Error(`${wrong[1]} should be a whole number in digits, or empty.`);
    const numbers: Numbers = Object.fromEntries(LIMITS.map(([field]) => [field, texts[field] ? Number(texts[field]) : null]));
    const all = Object.fromEntries(Object.entries(numbers).filter(([, number]) => number !== null));
    await save(all, Object.fromEntries(changed.map(([field]) => [field, numbers[field] ?? null])));
  }
  const title = <>Limits of <Line text={name} /></>;
  return (
    <Asking title={title} label="Save" act={change} done="The limits are changed." isReady={changed.length > 0} {...rest}>
      <p class="hint">{hint} 0 lets nothing through.</p>
      {LIMITS.map(([field, words]) => (
        <Field
          name={words}
          inputMode="numeric"
          placeholder="none"
          value={texts[field]}
          onText={(text) => setTexts({ ...texts, [field]: text.trim() })}
        />
      ))}
    </Asking>
  );
}
