// The tokens of a turn as they are stored, a box for each, page by page. A mark of Harmony never looks as the same text would.
import { useState } from "preact/hooks";
import { tokens } from "../../api";
import type { Token, TokenizedMessage, TurnTokens } from "../../wire";
import { useLoaded } from "../loading";
import { Failure, Line, Loading, count, plain } from "../text";

/** How many tokens are shown at once. */
const PAGE = 1_024;

export function Tokens({ id }: { id: string }) {
  const [before, setBefore] = useState<number[]>([]);
  const [ids, setIds] = useState(false);
  const after = before.at(-1) ?? 0;
  const { value, error, again } = useLoaded(`${id} ${after}`, (signal) => tokens(id, after, PAGE, signal), () => 0);
  if (!value) return error ? <Failure error={error} again={again} /> : <Loading what="tokens" />;
  const next = value.after;
  return (
    <div class={ids ? "tokens with-ids" : "tokens"}>
      <p class="hint">{about(value)}</p>
      <label class="check">
        <input type="checkbox" checked={ids} onChange={(event) => setIds(event.currentTarget.checked)} />
        Show ids
      </label>
      {value.messages.map((message) => <Message key={`${message.index} ${message.first}`} message={message} />)}
      {!value.length && <p class="empty">No tokens are stored for this turn.</p>}
      {(before.length > 0 || next !== null) && (
        <nav class="pages" aria-label="Pages of tokens">
          <button disabled={!before.length} onClick={() => setBefore(before.slice(0, -1))}>Earlier</button>
          <span class="hint">
            {(after + 1).toLocaleString("en")} to {(next ?? value.length).toLocaleString("en")}
          </span>
          <button disabled={next === null} onClick={() => next !== null && setBefore([...before, next])}>
            Later
          </button>
        </nav>
      )}
    </div>
  );
}

function about({ length, input_tokens, cached_tokens }: TurnTokens): string {
  const own = `This turn added ${count(length, "token")} to the conversation.`;
  if (input_tokens === null) return own;
  const cached = cached_tokens === null ? "" : `, ${cached_tokens.toLocaleString("en")} cached`;
  return `${own} The model read ${count(input_tokens, "token")} in all${cached}.`;
}

function Message({ message }: { message: TokenizedMessage }) {
  const { role, name, channel, recipient, content_type, vocabulary, length, first } = message;
  const more = [name, channel, recipient && `to ${recipient}`, content_type].filter((each) => each);
  return (
    <section class="message">
      <h2>
        <Line text={[role, ...more].join(" · ")} />
        <span class="hint">
          {count(length, "token")}
          {first > 0 && `, from number ${(first + 1).toLocaleString("en")} on`}
          {vocabulary === null && ", ids of the model's own vocabulary, whose texts aren't known here"}
        </span>
      </h2>
      <div class="boxes">
        {message.tokens.map((token, at) => <Box key={first + at} token={token} />)}
      </div>
    </section>
  );
}

function Box({ token }: { token: Token }) {
  const { id, text, special, bytes } = token;
  const unknown = text === null && !bytes;
  return (
    <span class={special ? "token special" : "token"} title={`${special ? "special token" : "token"} ${id}`}>
      <bdi>
        {text !== null ? (special ? text : spelled(text)) : bytes ? <span class="unseen">{hex(bytes)}</span> : id}
      </bdi>
      {!unknown && <small>{id}</small>}
    </span>
  );
}

/** A text whose ends of lines and tabs are seen. */
const spelled = (text: string) =>
  text.split(/([\n\t])/).map((part) => (/^[\n\t]$/.test(part) ? <span class="unseen">{part === "\n" ? "\\n" : "\\t"}</span> : plain(part)));

const hex = (bytes: number[]): string => bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");
