// Items of a response as a transcript: who, and what. What isn't known is shown as JSON.
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

function Entry({ who, detail, kind, children }: { who: string; detail?: string; kind: string; children: ComponentChildren }) {
  return (
    <section class={`item ${kind}`}>
      <h2>
        <Line text={who} />
        {detail && (
          <code>
            <Line text={detail} />
          </code>
        )}
      </h2>
      <div>{children}</div>
    </section>
  );
}

export function ItemView({ item }: { item: Item }) {
  const type = item.type ?? "message";
  if (type === "message")
    return (
      <Entry who={item.role ?? "message"} kind={item.role === "assistant" ? "assistant" : "user"}>
        <Parts parts={item.content ?? ""} />
      </Entry>
    );
  if (type === "reasoning") return <Reasoning item={item} />;
  if (type.endsWith("call") && typeof item.name === "string")
    return (
      <Entry who="calls" detail={item.name} kind="call">
        <Text text={laidOut(item.arguments ?? item.input ?? "")} mono />
        {typeof item.output === "string" && item.output && <Text text={laidOut(item.output)} mono />}
      </Entry>
    );
  if (type.endsWith("call_output") && (typeof item.output === "string" || Array.isArray(item.output)))
    return (
      <Entry who="result" kind="call">
        {typeof item.output === "string" ? <Text text={laidOut(item.output)} mono /> : <Parts parts={item.output as Part[]} />}
      </Entry>
    );
  return (
    <Entry who={type.replaceAll("_", " ")} kind="call">
      <Text text={pretty(item)} mono />
    </Entry>
  );
}

function Reasoning({ item }: { item: Item }) {
  const said = Array.isArray(item.content) ? item.content : [];
  const parts = said.length ? said : (item.summary ?? []);
  return (
    <section class="item reasoning">
      <h2>reasoning</h2>
      {parts.length ? (
        <details>
          <summary>
            <Line text={(parts[0]?.text ?? "").slice(0, 120)} />
          </summary>
          <Parts parts={parts} />
        </details>
      ) : (
        <p class="hint">Nothing of it is told.</p>
      )}
    </section>
  );
}
