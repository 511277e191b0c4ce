// Items of a response as a conversation: who says what; a call with what came of it; what isn't known as JSON, folded.
import type { ComponentChildren } from "preact";
import type { Item, Part } from "../../wire";
import { Line, Text } from "../text";

const pretty = (value: unknown): string => JSON.stringify(value, null, 2);

/** JSON with its lines set out, where it is JSON. */
function laidOut(text: string): string {
  try {
    return pretty(JSON.parse(text));
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

const textOf = (part: Part): string | null => part.text ?? part.refusal ?? null;

function Parts({ parts }: { parts: string | Part[] }) {
  if (typeof parts === "string") return <Text text={parts} />;
  return (
    <>
      {parts.map((part) => {
        const text = textOf(part);
        return text === null ? <Text text={pretty(part)} mono /> : <Text text={text} />;
      })}
    </>
  );
}

function Entry({ who, kind, children }: { who: string; kind: string; children: ComponentChildren }) {
  return (
    <section class={`item ${kind}`}>
      <h2>
        <Line text={who} />
      </h2>
      <div class="said">{children}</div>
    </section>
  );
}

/** Items, of which what came of a call is shown with it. */
export function ItemViews({ items }: { items: Item[] }) {
  const calls = new Set(items.filter((item) => item.type?.endsWith("_call")).map((item) => item["call_id"]));
  const outputs = new Map(items.filter(isOutput).map((item) => [item["call_id"], item]));
  return (
    <>
      {items.map((item, index) =>
        isOutput(item) && calls.has(item["call_id"]) ? null : (
          <ItemView key={item.id ?? index} item={item} output={outputs.get(item["call_id"])} />
        ),
      )}
    </>
  );
}

const isOutput = (item: Item): boolean => item.type?.endsWith("_call_output") ?? false;

function ItemView({ item, output }: { item: Item; output: Item | undefined }) {
  const type = item.type ?? "message";
  if (type === "message")
    return (
      <Entry who={item.role ?? "message"} kind={item.role === "assistant" || item.role === "user" ? item.role : "system"}>
        <Parts parts={item.content ?? ""} />
      </Entry>
    );
  if (type === "reasoning") return <Reasoning item={item} />;
  if (type.endsWith("call") && typeof item.name === "string")
    return (
      <Call name={item.name} detail="">
        <Text text={laidOut(item.arguments ?? item.input ?? "")} mono />
        {output ? <Output output={output.output} /> : item.output !== undefined && item.output !== null && <Output output={item.output} />}
      </Call>
    );
  if (isOutput(item))
    return (
      <Call name="result" detail={String(item["call_id"] ?? "")}>
        <Output output={item.output} />
      </Call>
    );
  return (
    <Call name={type.replaceAll("_", " ")} detail="">
      <Text text={pretty(item)} mono />
    </Call>
  );
}

function Call({ name, detail, children }: { name: string; detail: string; children: ComponentChildren }) {
  return (
    <section class="item call">
      <h2>
        <code>
          <Line text={name} />
        </code>
        {detail && <span class="hint"><Line text={detail} /></span>}
      </h2>
      {children}
    </section>
  );
}

function Output({ output }: { output: unknown }) {
  return (
    <div class="result">
      {Array.isArray(output) ? <Parts parts={output as Part[]} /> : <Text text={typeof output === "string" ? laidOut(output) : pretty(output)} mono />}
    </div>
  );
}

function Reasoning({ item }: { item: Item }) {
  const said = Array.isArray(item.content) ? item.content : [];
  const parts = said.length ? said : (item.summary ?? []);
  return (
    <section class="item reasoning">
      <h2 class="unshown">Reasoning</h2>
      {parts.length ? (
        <details>
          <summary>
            <b>Reasoning</b> <Line text={(parts[0]?.text ?? "").slice(0, 160)} />
          </summary>
          <Parts parts={parts} />
        </details>
      ) : (
        <p class="hint">Reasoning that isn't told.</p>
      )}
    </section>
  );
}
