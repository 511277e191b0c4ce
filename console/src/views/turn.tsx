// One turn: what it was told and says, its events, its tokens, its JSON, the request that makes it again; and what can be done
// with it.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useState } from "preact/hooks";
import { cancel, outcomes, ownItems, retrieve } from "../api";
import { markdownOf, textOf } from "../export";
import { again, asked, curl } from "../request";
import { leftOut, measured } from "../run";
import { EDITED_FROM, addVersion, key, toCompare, toTurn } from "../state";
import { type Answer, type HostedOutcome, type Item, type Turn, ended } from "../wire";
import { Events } from "./tabs/events";
import { Approving, ItemViews } from "./tabs/items";
import { Tokens } from "./tabs/tokens";
import { Steering, isSteerable, successor, unheard } from "./steering";
import { useDoing, useLoaded } from "./loading";
import { Ago, Code, Copy, Failure, Id, Line, Loading, Status, Text, count } from "./text";

const REFRESH_MS = 800;

export interface Whole {
  answer: Answer;
  items: Item[];
  complete: boolean;
  outcomes: HostedOutcome[];
}

/** Calls of which a response has what they came to only where that was asked for. */
const CALLS = new Set(["code_interpreter_call", "web_search_call", "file_search_call"]);

/** A response with its own input, which is asked for once for all that wait for it. */
export async function wholeOf(id: string, signal: AbortSignal): Promise<Whole> {
  const known = read.get(id);
  if (known) return known;
  const asked = asking.get(id) ?? ask(id);
  asking.set(id, asked);
  try {
    const whole = await asked;
    if (asking.get(id) === asked && ended(whole.answer.status)) keep(id, whole);
    signal.throwIfAborted();
    return whole;
  } finally {
    if (asking.get(id) === asked) asking.delete(id);
  }
}

async function ask(id: string): Promise<Whole> {
  const [answer, own] = await Promise.all([retrieve(id), ownItems(id)]);
  const called = ended(answer.status) && answer.output.some((item) => CALLS.has(item.type ?? ""));
  return { answer, ...own, outcomes: called ? await outcomes(id) : [] };
}

/** How many turns are kept that were read, those that were read last; as many of a conversation are in the page. */
export const MAX_READ = 300;
const read = new Map<string, Whole>();
const asking = new Map<string, Promise<Whole>>();

function keep(id: string, whole: Whole): void {
  read.set(id, whole);
  const [oldest] = read.keys();
  if (read.size > MAX_READ && oldest) read.delete(oldest);
}

/** Forget what was read: some of it may be gone, or somebody else looks. */
export function forgetRead(): void {
  read.clear();
  asking.clear();
}

export type Act = "answer" | "continue" | "retry" | "edit" | "compare" | "inspect" | "remove";

export interface Acting {
  turn: Turn;
  /** The response that this one continues, where it is one. */
  parent: Turn | null;
  /** Whether the conversation is read as far as this turn. */
  isHere: boolean;
  /** `given` is the item that answers. */
  onAct: (act: Act, turn: Turn, given?: Item) => void;
  onChanged: (id?: string) => void;
}

const TABS = ["Items", "Events", "Tokens", "JSON", "curl"] as const;
type Tab = (typeof TABS)[number];

const NOT_RESPONSES: Record<string, string> = {
  items: "Items that somebody added to the conversation, not a response.",
  omission: "Something was erased here. The conversation goes on without it.",
  conversation: "The conversation ends here for now: its next response continues this turn.",
};

export const isResponse = (turn: Turn): boolean => turn.kind === "response" && turn.status !== "deleted";

export function TurnView(props: Acting) {
  const { turn } = props;
  if (isResponse(turn)) return <ResponseView key={turn.id} {...props} />;
  return (
    <>
      <header class="about">
        <Id id={turn.id} />
      </header>
      {turn.input && turn.status !== "deleted" && <Text text={turn.input} />}
      <p class="hint">
        {turn.status === "deleted"
          ? "This response was deleted. Later turns are kept, and know what it said unless it was erased."
          : NOT_RESPONSES[turn.kind]}
      </p>
    </>
  );
}

function ResponseView({ turn, parent, isHere, onAct, onChanged }: Acting) {
  const loaded = useLoaded(turn.id, (signal) => wholeOf(turn.id, signal), (whole) => (ended(whole.answer.status) ? 0 : REFRESH_MS));
  const value = loaded.value ?? read.get(turn.id) ?? null;
  const { error, again: reload } = loaded;
  const [tab, setTab] = useState<Tab>("Items");
  const { error: failed, attempt } = useDoing();
  const [steers, setSteers] = useState(false);
  const [seen, setSeen] = useState("");
  if (value && seen !== value.answer.status) {
    if (seen) onChanged(isHere ? (successor(value.answer) ?? undefined) : undefined);
    setSeen(value.answer.status);
  }
  useLayoutEffect(() => setTab("Items"), [isHere]);
  const first = value?.answer.metadata?.[EDITED_FROM];
  useLayoutEffect(() => {
    if (first && !parent) addVersion(first, turn.id);
  }, [first]);
  if (!value) return error ? <Failure error={error} again={reload} /> : <Excerpts turn={turn} />;
  const { answer, items, complete } = value;
  const shown: Record<string, unknown> = { Events: answer.background, Tokens: ended(answer.status) };
  const tabs = TABS.filter((each) => shown[each] ?? true);

  async function stop() {
    await cancel(turn.id);
    reload();
    onChanged();
  }

  return (
    <Approving.Provider value={ended(answer.status) ? (given) => onAct("answer", turn, given) : null}>
      <div class="above">
        <About answer={answer} isHere={isHere} />
        <Actions answer={answer} items={items} parent={parent} complete={complete} isHere={isHere} onAct={(act) => onAct(act, turn)}>
          {!ended(answer.status) && isSteerable(answer) && <button class="main" onClick={() => setSteers(true)}>Say something</button>}
          {!ended(answer.status) && <button class="danger" onClick={() => attempt(stop)}>Cancel</button>}
        </Actions>
      </div>
      <Failure error={failed} />
      <Failure error={error} again={reload} />
      {steers && !ended(answer.status) && <Steering id={turn.id} onClose={() => setSteers(false)} />}
      {isHere ? (
        <>
          <Tabs tabs={tabs} tab={tab} onTab={setTab} />
          <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
            {tab === "Items" && <Items whole={value} />}
            {tab === "Events" && <Events id={turn.id} />}
            {tab === "Tokens" && <Tokens id={turn.id} />}
            {tab === "JSON" && <Code text={JSON.stringify(answer, null, 2)} />}
            {tab === "curl" && <Curl answer={answer} items={items} parent={parent} />}
          </div>
        </>
      ) : <Items whole={value} />}
    </Approving.Provider>
  );
}

/** What is known of a turn before it is read. */
function Excerpts({ turn }: { turn: Turn }) {
  return (
    <div class="items" aria-busy="true">
      {turn.input && (
        <section class="item user">
          <Line text={turn.input} />
        </section>
      )}
      {turn.output ? <Line text={turn.output} /> : <Loading what="the turn" />}
    </div>
  );
}

function About({ answer, isHere }: { answer: Answer; isHere: boolean }) {
  const usage = answer.usage;
  const cached = usage?.input_tokens_details?.cached_tokens ?? 0;
  return (
    <header class="about">
      <Status status={answer.status} words={isHere || answer.status !== "completed"} />
      {isHere && <span class="model"><Line text={answer.model} /></span>}
      {usage && (
        <span title="Tokens of the input and of the output">
          {usage.input_tokens.toLocaleString("en")} → {usage.output_tokens.toLocaleString("en")} tokens
          {cached > 0 && `, ${Math.round((100 * cached) / usage.input_tokens)} % cached`}
        </span>
      )}
      <Times answer={answer} />
      <Ago at={answer.created_at} />
      {isHere && <Id id={answer.id} />}
    </header>
  );
}

const seconds = (ms: number): string => (ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`);

/** The time that a response took: as it was measured here, where it was asked for here; else in the service's whole seconds. */
function Times({ answer }: { answer: Answer }) {
  const times = measured.get(answer.id);
  const took = answer.completed_at ? answer.completed_at - answer.created_at : null;
  if (!times) return took === null ? null : <span title="In whole seconds, as it is stored">{took < 1 ? "under 1 s" : `${took} s`}</span>;
  const { first, total } = times;
  const rate = ((answer.usage?.output_tokens ?? 0) * 1_000) / (total - first);
  return (
    <span title="As this page measured it: in all, until the first token, and tokens a second from there on">
      {seconds(total)}
      {first > 0 && `, first token after ${seconds(first)}`}
      {first > 0 && rate > 0 && Number.isFinite(rate) && `, ${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`}
    </span>
  );
}

/** Move the focus among the buttons of a bar by arrows; the one that has it now. */
export function onArrow(event: KeyboardEvent): HTMLButtonElement | null {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!step) return null;
  const bar = event.currentTarget as HTMLElement;
  const buttons = [...bar.querySelectorAll<HTMLButtonElement>("button:not(:disabled)")];
  const next = buttons[(buttons.indexOf(document.activeElement as HTMLButtonElement) + step + buttons.length) % buttons.length];
  event.preventDefault();
  next?.focus();
  return next ?? null;
}

function Actions({ answer, items, parent, complete, isHere, onAct, children }: {
  answer: Answer;
  items: Item[];
  parent: Turn | null;
  complete: boolean;
  isHere: boolean;
  onAct: (act: Act) => void;
  children: ComponentChildren;
}) {
  const repeatable = complete && (parent === null || isResponse(parent));
  const why = repeatable ? "" : "The turn before it can't be continued";
  const words = asked(items);
  const rest = { tabIndex: -1 };
  return (
    <div class="actions" role="toolbar" aria-label="Actions" onKeyDown={onArrow}>
      {children}
      {ended(answer.status) && <button onClick={() => onAct("continue")}>Continue from here</button>}
      <button {...rest} disabled={!repeatable} title={why} onClick={() => onAct("retry")}>Retry</button>
      <button
        {...rest}
        disabled={!repeatable || words === null}
        title={why || (words === null ? "Its input isn't plain text" : "")}
        onClick={() => onAct("edit")}
      >
        {parent ? "Edit and fork" : "Edit as another version"}
      </button>
      <button {...rest} onClick={() => onAct("compare")}>Compare</button>
      {!isHere && (
        <button {...rest} title="Its tokens, its events, its JSON" onClick={() => onAct("inspect")}>
          Inspect
        </button>
      )}
      <Copy {...rest} text={() => answer.output.filter(({ role }) => role).map(textOf).join("\n\n")} label="Copy" title="Copy the answer" />
      <Copy {...rest} text={() => markdownOf([...items, ...answer.output])} label="Markdown" title="Copy the turn as Markdown" />
      <Copy {...rest} text={() => new URL(toTurn(answer.id), location.href).href} label="Link" title="Copy a link to the turn" />
      <button {...rest} onClick={() => onAct("remove")}>Delete…</button>
    </div>
  );
}

function Tabs({ tabs, tab, onTab }: { tabs: Tab[]; tab: Tab; onTab: (tab: Tab) => void }) {
  return (
    <div class="tabs" role="tablist" aria-label="Views of the turn" onKeyDown={(event) => onArrow(event)?.click()}>
      {tabs.map((each) => (
        <button
          id={`tab-${each}`}
          role="tab"
          aria-selected={each === tab}
          aria-controls="panel"
          tabIndex={each === tab ? 0 : -1}
          onClick={() => onTab(each)}
        >
          {each}
        </button>
      ))}
    </div>
  );
}

export function Items({ whole }: { whole: Whole }) {
  const { answer, items, complete, outcomes } = whole;
  const reason = answer.incomplete_details?.reason;
  return (
    <div class="items">
      {typeof answer["instructions"] === "string" && answer["instructions"] && (
        <details class="item instructions">
          <summary>
            <b>Instructions</b> <Line text={answer["instructions"].slice(0, 160)} />
          </summary>
          <Text text={answer["instructions"]} />
        </details>
      )}
      {!complete && <p class="hint">Only the last {count(items.length, "item")} of the input are shown.</p>}
      <ItemViews items={[...items, ...answer.output]} outcomes={outcomes} />
      {!ended(answer.status) && <Loading what="more of it" />}
      {answer.error && <Failure error={answer.error.message ?? answer.error.code ?? "It failed."} />}
      {unheard(answer) > 0 && <p class="hint">{count(unheard(answer), "message")} to this response had no effect.</p>}
      {leftOut.has(answer.id) && (
        <p class="hint">
          Not served here, and left out: <Line text={leftOut.get(answer.id) ?? ""} />. A setting of the service gives it.
        </p>
      )}
      {reason && <p class="hint">It ended early: {reason.replaceAll("_", " ")}.</p>}
      {answer.metadata && Object.keys(answer.metadata).length > 0 && (
        <dl class="metadata">
          {Object.entries(answer.metadata).map(([name, value]) => (
            <div>
              <dt><Line text={name} /></dt>
              <dd>{name === "replay_of" ? <a href={toCompare(value, answer.id)}>Compare with <Line text={value} /></a> : <Line text={value} />}</dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}

function Curl({ answer, items, parent }: { answer: Answer; items: Item[]; parent: Turn | null }) {
  const text = curl(location.origin, key.value !== "", again(answer, items, parent?.id ?? null));
  return (
    <>
      <p class="hint">Makes the same request again{key.value && ", with the key in HARMONIUM_API_KEY"}.</p>
      <Code text={text} />
    </>
  );
}
