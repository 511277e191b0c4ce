// Items of a response as a conversation: who says what; a call with what came of it; what isn't known as JSON, folded.
import { type ComponentChildren, createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import { bytesOf, filesOf } from "../../api";
import { save } from "../../export";
import { toTurn } from "../../state";
import type { GivenAnswer, HostedOutcome, Item, Part, Turn } from "../../wire";
import { useDoing } from "../loading";
import { Link, Markdown } from "../markdown";
import { Code, Failure, Line, Text, count, size } from "../text";

/** What answers a request for an approval, where somebody can. */
export const Approving = createContext<((given: Item) => void) | null>(null);

/** What later turns give, by the ids of the requests for approval and the calls that wait for it, each with its turn. */
type Answers = Map<string, (GivenAnswer & { turn: string })[]>;
export const Answered = createContext<Answers>(new Map());

/** The answers that the turns of a tree give. */
export const answersIn = (turns: Turn[]): Answers =>
  Map.groupBy(turns.flatMap(({ id, answers = [] }) => answers.map((each) => ({ ...each, turn: id }))), ({ to }) => to);

const pretty = (value: unknown): string => JSON.stringify(value, null, 2);
const textIn = (value: unknown): string => (typeof value === "string" ? value : "");
const listIn = <T,>(value: unknown): T[] => (Array.isArray(value) ? (value as T[]) : []);
const objectIn = (value: unknown): Record<string, unknown> => (value && typeof value === "object" ? (value as Record<string, unknown>) : {});

/** The longest JSON that stands in one line. */
const ONE_LINE_CHARS = 80;

/** JSON with its lines set out, or in one where it is short; any other text as it is. */
function laidOut(text: string): string {
  try {
    const lines = pretty(JSON.parse(text));
    const line = lines.replace(/\n\s*/g, " ");
    return line.length <= ONE_LINE_CHARS ? line : lines;
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

function Parts({ parts, isRead = false }: { parts: string | Part[]; isRead?: boolean }) {
  const Words = isRead ? Markdown : Text;
  if (typeof parts === "string") return <Words text={parts} />;
  return (
    <>
      {parts.map((part) => {
        const text = part.text ?? part.refusal;
        if (typeof text !== "string") return <Attached part={part} />;
        return (
          <>
            <Words text={text} />
            <Sources annotations={listIn(part["annotations"])} />
          </>
        );
      })}
    </>
  );
}

/** A picture or a file of a message. */
function Attached({ part }: { part: Part }) {
  const url = textIn(part["image_url"]) || textIn(part["file_data"]) || textIn(part["file_url"]);
  const name = textIn(part["filename"]) || textIn(part["file_id"]);
  if (!url && !name) return <Text text={pretty(part)} mono />;
  return <Picture url={url} name={name} />;
}

const PICTURE = /^data:(image\/(?:png|jpeg|gif|webp));base64,/;

/** What is known of a picture; it is shown when somebody asks for it, and never loaded from elsewhere. */
function Picture({ url, name }: { url: string; name: string }) {
  const [shown, setShown] = useState(false);
  const type = /^data:([\w.+-]+\/[\w.+-]+)/.exec(url)?.[1];
  const label = [name, type, type && size(0.75 * (url.length - url.indexOf(",")))].filter(Boolean).join(", ");
  return (
    <p class="attached">
      {type || !url ? <Line text={label} /> : <Link href={url} />}
      {PICTURE.test(url) && <button onClick={() => setShown(!shown)}>{shown ? "Hide" : "Show"}</button>}
      {shown && <img src={url} alt={label} />}
    </p>
  );
}

interface Annotation {
  type?: string;
  url?: string;
  title?: string;
  container_id?: string;
  file_id?: string;
  filename?: string;
  bytes?: number;
}

/** What a text cites, each once, and the files that it names. */
function Sources({ annotations }: { annotations: Annotation[] }) {
  const cited = new Map(annotations.map((each) => [each.url ?? each.file_id, each]));
  if (!cited.size) return null;
  return (
    <ul class="sources">
      {[...cited.values()].map((each) => (
        <li>
          {each.url ? <Link href={each.url}>{each.title && <Line text={each.title} />}</Link> : <File file={each} />}
        </li>
      ))}
    </ul>
  );
}

/** The files of the container in which code ran. They are asked for once somebody opens them, as that is a use of it. */
function Files({ container }: { container: string }) {
  const [files, setFiles] = useState<Annotation[] | null>(null);
  const { error, attempt } = useDoing();
  async function load() {
    const found = await filesOf(container);
    setFiles(found.map(({ id, path, bytes }) => ({ container_id: container, file_id: id, filename: path.split("/").at(-1) ?? path, bytes })));
  }
  return (
    <details class="files" onToggle={(event) => event.currentTarget.open && attempt(load)}>
      <summary>Files</summary>
      {files && <Sources annotations={files} />}
      {files?.length === 0 && <p class="hint">None in its container.</p>}
      <Failure error={error} />
    </details>
  );
}

/** A file, which those of a container can be saved. */
function File({ file }: { file: Annotation }) {
  const { error, attempt } = useDoing();
  const name = file.filename ?? file.file_id ?? "file";
  const load = async () => save(name, [await bytesOf(file.container_id ?? "", file.file_id ?? "")]);
  return (
    <>
      <Line text={file.bytes === undefined ? name : `${name}, ${size(file.bytes)}`} />{" "}
      {file.container_id && <button onClick={() => attempt(load)}>Download</button>}
      <Failure error={error} />
    </>
  );
}

const ROLES = new Set(["user", "assistant"]);

/** Items, of which what came of a call is shown with it. */
export function ItemViews({ items, outcomes }: { items: Item[]; outcomes: HostedOutcome[] }) {
  const hosted = new Map(outcomes.map((each) => [each.id, each]));
  const calls = new Set(items.filter((item) => item.type?.endsWith("_call")).map((item) => item["call_id"]));
  const outputs = new Map(items.filter(isOutput).map((item) => [item["call_id"], item]));
  return (
    <>
      {items.map((item, index) =>
        isOutput(item) && calls.has(item["call_id"]) ? null : (
          <ItemView key={item.id ?? index} item={item} output={outputs.get(item["call_id"])} outcome={hosted.get(item.id ?? "")} />
        ),
      )}
    </>
  );
}

const isOutput = (item: Item): boolean => item.type?.endsWith("_output") ?? false;

/** An item, the item that has its output, and what it came to where the service made the call. */
interface Shown {
  item: Item;
  output: Item | undefined;
  outcome: HostedOutcome | undefined;
}

function ItemView({ item, output, outcome }: Shown) {
  const later = useContext(Answered).get(textIn(item["call_id"])) ?? [];
  const type = item.type ?? "message";
  if (type === "message") {
    const role = item.role ?? "message";
    return (
      <section class={`item ${ROLES.has(role) ? role : "system"}`}>
        <h2>
          <Line text={role} />
        </h2>
        <div class="said">
          <Parts parts={item.content ?? ""} isRead={role === "assistant"} />
        </div>
      </section>
    );
  }
  if (type === "reasoning") return <Reasoning item={item} />;
  if (type === "mcp_approval_request") return <Approval item={item} />;
  if (type === "mcp_approval_response")
    return (
      <section class="item user">
        <h2>answer</h2>
        <div class="said">
          <Text text={item["approve"] === true ? "Approved" : ["Denied", textIn(item["reason"])].filter(Boolean).join(": ")} />
        </div>
      </section>
    );
  const { name, passed, result } = callOf({ item, output, outcome }, later[0]?.name ?? "");
  const elsewhere = output || isOutput(item) ? [] : later;
  const words = elsewhere.length === 1 ? elsewhere[0]?.words : "";
  return (
    <Call name={name} passed={passed} status={item.status ?? ""} result={words || result}>
      {elsewhere.map((each) => (
        <a key={each.turn} class="later" href={toTurn(each.turn)}>
          <Line text={each.words || "Its output"} />
        </a>
      ))}
      {typeof result === "string" ? result && <Text text={laidOut(result)} mono /> : result}
      {type === "code_interpreter_call" && item["container_id"] && <Files container={textIn(item["container_id"])} />}
    </Call>
  );
}

interface Called {
  name: string;
  passed: string;
  result: string | ComponentChildren;
}

/** What a call is called, what it passes, and what came of it; of an output alone, whose it is. */
function callOf({ item, output, outcome }: Shown, caller: string): Called {
  const action = objectIn(item["action"]);
  const type = item.type ?? "";
  const failed = item["error"] ? `Error: ${reasonIn(item["error"])}` : "";
  const given = output ? output.output : item.output;
  const result = Array.isArray(given) ? <Parts parts={given as Part[]} /> : typeof given === "string" ? given : given ? pretty(given) : "";
  if (isOutput(item)) return { name: caller && caller !== "result" ? `result of ${caller}` : "result", passed: "", result };
  if (type === "mcp_list_tools") {
    const tools = listIn<{ name?: string; description?: string }>(item["tools"]);
    const told = tools.map((tool) => (tool.description ? `${tool.name}: ${tool.description}` : tool.name)).join("\n");
    return { name: `${textIn(item["server_label"])}: ${count(tools.length, "tool")}`, passed: "", result: failed || <Text text={told} /> };
  }
  if (type === "code_interpreter_call") return { name: "python", passed: textIn(item["code"]), result: item["outputs"] ? <Outputs outputs={listIn(item["outputs"])} /> : (outcome?.text ?? "") };
  if (type === "web_search_call") {
    const sources = listIn<Annotation>(action["sources"]);
    const found = sources.length ? sources : (outcome?.sources ?? []).map((url) => ({ url }));
    return {
      name: textIn(action["type"]).replaceAll("_", " ") || "search",
      passed: textIn(action["query"]) || [textIn(action["pattern"]), textIn(action["url"])].filter(Boolean).join(" in "),
      result: (
        <>
          <Sources annotations={found} />
          {outcome && <details><summary>What the model read</summary><Text text={outcome.text} mono /></details>}
        </>
      ),
    };
  }
  if (type === "file_search_call")
    return { name: "file search", passed: listIn<string>(item["queries"]).join(", "), result: item["results"] ? pretty(item["results"]) : (outcome?.text ?? "") };
  if (typeof item.name === "string") {
    const server = textIn(item["server_label"]);
    return { name: server ? `${server} · ${item.name}` : item.name, passed: item.arguments ?? item.input ?? "", result: failed || result };
  }
  return { name: type.replace(/_call$/, "").replaceAll("_", " "), passed: "", result: result || <Text text={pretty(item)} mono /> };
}

/** The reason of an error: the words of a tool or a server, where it has some. */
function reasonIn(error: unknown): string {
  const { content, message } = objectIn(error);
  return textIn(error) || listIn<Part>(content).map(({ text }) => text ?? "").join("\n") || textIn(message) || pretty(error);
}

/** What code printed and drew. */
function Outputs({ outputs }: { outputs: { type?: string; logs?: string; url?: string }[] }) {
  return <>{outputs.map((each) => (each.url ? <Picture url={each.url} name="" /> : <Text text={each.logs ?? pretty(each)} mono />))}</>;
}

/** How much of a call is open from the start. */
const OPEN_CHARS = 400;

/** How much of what a call passes stands in its line. */
const LINE_CHARS = 160;

function Call({ name, passed, status, result, children }: Called & { status: string; children: ComponentChildren }) {
  const isShort = passed.length + (typeof result === "string" ? result.length : 0) <= OPEN_CHARS;
  return (
    <details class="item call" open={isShort && passed !== ""}>
      <summary>
        <code>
          <Line text={name} />
        </code>{" "}
        {status && status !== "completed" && <span class="hint"><Line text={status.replaceAll("_", " ")} /> </span>}
        <Line text={passed.slice(0, LINE_CHARS)} />
        {typeof result === "string" && result && <span class="after"> → <Line text={result.slice(0, LINE_CHARS)} /></span>}
      </summary>
      {passed && <Code text={laidOut(passed)} />}
      <div class="result">{children}</div>
    </details>
  );
}

function Approval({ item }: { item: Item }) {
  const answer = useContext(Approving);
  const given = useContext(Answered).get(item.id ?? "") ?? [];
  const [reason, setReason] = useState("");
  const give = (more: object) => answer?.({ type: "mcp_approval_response", approval_request_id: item.id, ...more });
  return (
    <section class={given.length ? "item call approval answered" : "item call approval"}>
      {given.length ? (
        given.map((each) => (
          <h2 key={each.turn}>
            <a href={toTurn(each.turn)}><Line text={each.words} /></a>
          </h2>
        ))
      ) : <h2>Approve this call?</h2>}
      <p>
        <code><Line text={`${textIn(item["server_label"])} · ${item.name}`} /></code>
      </p>
      <Code text={laidOut(item.arguments ?? "")} />
      {answer && !given.length && (
        <p>
          <button class="main" onClick={() => give({ approve: true })}>Approve</button>{" "}
          <button onClick={() => give({ approve: false, ...(reason.trim() && { reason: reason.trim() }) })}>Deny</button>{" "}
          <input aria-label="Reason to deny" placeholder="Reason, if you deny" value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
        </p>
      )}
    </section>
  );
}

function Reasoning({ item }: { item: Item }) {
  const said = Array.isArray(item.content) ? item.content : [];
  const parts = said.length ? said : (item.summary ?? []);
  if (!parts.length) return <p class="hint">The model's reasoning isn't shown.</p>;
  return (
    <section class="item reasoning">
      <h2 class="unshown">Reasoning</h2>
      <details>
        <summary>
          <b>Reasoning</b> <Line text={(parts[0]?.text ?? "").slice(0, LINE_CHARS)} />
        </summary>
        <Parts parts={parts} />
      </details>
    </section>
  );
}
