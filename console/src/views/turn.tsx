// One turn: what it was told and says, its JSON, the request that makes it again, its events; and what can be done with it.
import { useState } from "preact/hooks";
import { cancel, ownItems, retrieve } from "../api";
import { again, asked, curl, edited, going } from "../request";
import { key } from "../state";
import { type Answer, type Item, type Turn, ended } from "../wire";
import { Composer, type Draft } from "./composer";
import { Events } from "./tabs/events";
import { ItemView } from "./tabs/items";
import { Tokens } from "./tabs/tokens";
import { Steering, isSteerable, successor, unheard } from "./steering";
import { useLoaded } from "./loading";
import { Ago, Copy, Failure, Id, Line, Loading, Status, Text, count, wordsOf } from "./text";

const REFRESH_MS = 800;

export interface Whole {
  answer: Answer;
  items: Item[];
  complete: boolean;
}

/** A response with its own input. */
export async function wholeOf(id: string, signal: AbortSignal): Promise<Whole> {
  const [answer, own] = await Promise.all([retrieve(id, signal), ownItems(id, signal)]);
  return { answer, ...own };
}

interface Acting {
  turn: Turn;
  /** The response that this one continues, where it is one. */
  parent: Turn | null;
  onChanged: (id?: string) => void;
  onCompare: () => void;
  onRemove: () => void;
}

const TABS = ["Items", "Events", "Tokens", "JSON", "curl"] as const;
type Tab = (typeof TABS)[number];

const NOT_RESPONSES: Record<string, string> = {
  items: "Items that somebody added to the conversation. They are no response, so there is nothing to retrieve.",
  omission: "The conversation goes on here without something that was taken out of it.",
  conversation: "A conversation stands here: what is added to it next continues this place.",
};

export function TurnView(props: Acting) {
  const { turn } = props;
  if (turn.status === "deleted" || turn.kind !== "response")
    return (
      <section class="turn" aria-label="Turn">
        <header class="about">
          <Id id={turn.id} />
        </header>
        <div class="empty">
          <h2>{turn.status === "deleted" ? "This response was deleted" : "No response"}</h2>
          <p>
            {turn.status === "deleted"
              ? "What continues it is kept, and knows what was said here unless it was erased."
              : NOT_RESPONSES[turn.kind]}
          </p>
          {turn.input && turn.status !== "deleted" && <Text text={turn.input} />}
        </div>
      </section>
    );
  return <ResponseView key={turn.id} {...props} />;
}

function ResponseView({ turn, parent, onChanged, onCompare, onRemove }: Acting) {
  const { value, error, again: reload } = useLoaded(
    turn.id,
    (signal) => wholeOf(turn.id, signal),
    (whole) => (ended(whole.answer.status) ? 0 : REFRESH_MS),
  );
  const [tab, setTab] = useState<Tab>("Items");
  const [draft, setDraft] = useState<Draft | null>(null);
  const [failed, setFailed] = useState("");
  const [steers, setSteers] = useState(false);
  const [seen, setSeen] = useState("");
  if (value && seen !== value.answer.status) {
    if (seen) onChanged(successor(value.answer) ?? undefined);
    setSeen(value.answer.status);
  }
  if (!value) return <section class="turn" aria-label="Turn">{error ? <Failure error={error} again={reload} /> : <Loading what="the turn" />}</section>;
  const { answer, items, complete } = value;
  const shown: Record<string, unknown> = { Events: answer.background, Tokens: ended(answer.status) };
  const tabs = TABS.filter((each) => shown[each] ?? true);

  async function stop() {
    setFailed("");
    try {
      await cancel(turn.id);
      reload();
      onChanged();
    } catch (caught) {
      setFailed(wordsOf(caught));
    }
  }

  return (
    <section class="turn" aria-label="Turn">
      <About answer={answer} />
      <Actions
        answer={answer}
        items={items}
        parent={parent}
        complete={complete}
        onDraft={setDraft}
        onCancel={stop}
        onSteer={() => setSteers(true)}
        onCompare={onCompare}
        onRemove={onRemove}
      />
      {failed && <Failure error={failed} />}
      {error && <Failure error={error} again={reload} />}
      {steers && !ended(answer.status) && <Steering id={turn.id} onClose={() => setSteers(false)} />}
      {draft && (
        <Composer
          key={draft.title}
          draft={draft}
          onClose={() => setDraft(null)}
          onBegun={() => onChanged()}
          onDone={(id) => {
            onChanged(id);
            if (id !== turn.id) setDraft(null);
          }}
        />
      )}
      <Tabs tabs={tabs} tab={tab} onTab={setTab} />
      <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {tab === "Items" && <Items whole={value} />}
        {tab === "Events" && <Events id={turn.id} />}
        {tab === "Tokens" && <Tokens id={turn.id} />}
        {tab === "JSON" && <Code text={JSON.stringify(answer, null, 2)} />}
        {tab === "curl" && <Curl answer={answer} items={items} parent={parent} />}
      </div>
    </section>
  );
}

function About({ answer }: { answer: Answer }) {
  const usage = answer.usage;
  const cached = usage?.input_tokens_details?.cached_tokens ?? 0;
  const seconds = answer.completed_at ? answer.completed_at - answer.created_at : null;
  return (
    <header class="about">
      <Status status={answer.status} />
      <span class="model">
        <Line text={answer.model} />
      </span>
      {usage && (
        <span title="Tokens of the input and of the output">
          {usage.input_tokens.toLocaleString("en")} → {usage.output_tokens.toLocaleString("en")} tokens
          {cached > 0 && `, ${cached.toLocaleString("en")} cached`}
        </span>
      )}
      {seconds !== null && <span>{seconds < 1 ? "under 1 s" : `${seconds} s`}</span>}
      <Ago at={answer.created_at} />
      <Id id={answer.id} />
    </header>
  );
}

function Actions({ answer, items, parent, complete, onDraft, onCancel, onSteer, onCompare, onRemove }: {
  answer: Answer;
  items: Item[];
  parent: Turn | null;
  complete: boolean;
  onDraft: (draft: Draft) => void;
  onCancel: () => void;
  onSteer: () => void;
  onCompare: () => void;
  onRemove: () => void;
}) {
  const isOver = ended(answer.status);
  const before = parent?.id ?? null;
  const repeatable = complete && (parent === null || (parent.kind === "response" && parent.status !== "deleted"));
  const why = repeatable ? "" : "What it continues can't be continued by a request";
  const words = asked(items);
  return (
    <div class="actions" role="toolbar" aria-label="Actions">
      {isOver && (
        <button
          class="main"
          onClick={() =>
            onDraft({ title: "Continue from here", action: "Send", text: "", body: (text) => going(answer, text) })
          }
        >
          Continue from here
        </button>
      )}
      {!isOver && isSteerable(answer) && (
        <button class="main" onClick={onSteer}>
          Say something
        </button>
      )}
      {!isOver && (
        <button class="danger" onClick={onCancel}>
          Cancel
        </button>
      )}
      <button
        disabled={!repeatable}
        title={why}
        onClick={() =>
          onDraft({ title: "Ask the same again", action: "Retry", text: null, body: () => again(answer, items, before) })
        }
      >
        Retry
      </button>
      <button
        disabled={!repeatable || words === null}
        title={why || (words === null ? "What was asked isn't plain text" : "")}
        onClick={() =>
          onDraft({
            title: "Edit and fork",
            action: "Send",
            text: words,
            body: (text) => again(answer, edited(items, text), before),
          })
        }
      >
        Edit and fork
      </button>
      <button onClick={onCompare}>Compare</button>
      <button onClick={onRemove}>Delete…</button>
    </div>
  );
}

function Tabs({ tabs, tab, onTab }: { tabs: Tab[]; tab: Tab; onTab: (tab: Tab) => void }) {
  function onKeyDown(event: KeyboardEvent) {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    if (!next) return;
    onTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  }
  return (
    <div class="tabs" role="tablist" aria-label="Views of the turn" onKeyDown={onKeyDown}>
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
  const { answer, items, complete } = whole;
  const reason = answer.incomplete_details?.reason;
  return (
    <div class="items">
      {typeof answer["instructions"] === "string" && answer["instructions"] && (
        <section class="item instructions">
          <h2>instructions</h2>
          <Text text={answer["instructions"]} />
        </section>
      )}
      {!complete && <p class="hint">Only the last {count(items.length, "item")} of the input are shown.</p>}
      {items.map((item, index) => (
        <ItemView key={item.id ?? index} item={item} />
      ))}
      {answer.output.map((item, index) => (
        <ItemView key={item.id ?? `output ${index}`} item={item} />
      ))}
      {!ended(answer.status) && <Loading what="more of it" />}
      {answer.error && <Failure error={answer.error.message ?? answer.error.code ?? "It failed."} />}
      {unheard(answer) > 0 && <p class="hint">{count(unheard(answer), "thing")} that was said to it had no effect.</p>}
      {reason && <p class="hint">It ended early: {reason.replaceAll("_", " ")}.</p>}
      {answer.metadata && Object.keys(answer.metadata).length > 0 && (
        <dl class="metadata">
          {Object.entries(answer.metadata).map(([name, value]) => (
            <div>
              <dt>
                <Line text={name} />
              </dt>
              <dd>
                <Line text={value} />
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}

function Code({ text }: { text: string }) {
  return (
    <div class="code">
      <Copy text={text} label="Copy" />
      <Text text={text} mono />
    </div>
  );
}

function Curl({ answer, items, parent }: { answer: Answer; items: Item[]; parent: Turn | null }) {
  const text = curl(location.origin, key.value !== "", again(answer, items, parent?.id ?? null));
  return (
    <>
      <p class="hint">
        Asks the same again, from the same place{key.value && ", with the key in HARMONIUM_API_KEY"}.
      </p>
      <Code text={text} />
    </>
  );
}
