// Markdown as nodes of ours: `marked` only says what stands where. What it takes for HTML stays text, nothing is loaded, a
// link says where it leads, and mathematics stays as it was written.
import { Marked, type Token, type Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Code, Text, plain } from "./text";

/** The longest text that is read as Markdown. */
const MAX_CHARS = 50_000;

/**
 * How much may stand in a block that could mean something, and how many lines that begin nothing: what is hostile takes the
 * square of either, some 100 ms at the most.
 */
const MAX_MARKS = 1_000;

/** How deep quotes and lists are read within one another. */
const MAX_DEPTH = 24;

const MARKER = "(?:[-+*][ \\t]+|\\d+[.)][ \\t]+|>[ \\t]*)";

/** What is nested deeper than that: by markers in one line, or by the room before one. */
const DEEP = new RegExp(`^[ \\t]*(?:${MARKER}{${MAX_DEPTH}}|[ \\t]{${2 * MAX_DEPTH}}${MARKER})`, "m");
const CONTINUED = new RegExp(`^(?![ \\t]*${MARKER}).*\\S`, "gm");

/** Code in which nothing is looked for; but all that follows what may have such marks within it, or where `marked` sees others. */
const FENCED = /(?<=^|\n)(?:```[^`\n]*\n(?:[^]*?\n)?? {0,3}```+ *(?=\n|$)|( {0,3}(?:```|[<~\\[]|\$\$)[^]*))/g;

const MATH = /^(?:\$\$[^$]+?\$\$|\\\[[^]+?\\\]|\\\([^\n]+?\\\)|\$(?![\s$])[^$\n]*?[^\s$\\]\$(?!\d))/;

const mathematics = (level: "block" | "inline") => ({
  name: `math ${level}`,
  level,
  // of a paragraph, which a blank line ends: a look at all that follows, from each of them, takes the square of it
  ...(level === "block" && {
    start(source: string) {
      const found = source.match(/\n(?:\$\$|\\\[|[ \t]*\n)/);
      return found?.[0].endsWith("\n") ? undefined : found?.index;
    },
  }),
  tokenizer(source: string) {
    const found = (level === "inline" || /^(?:\$\$|\\\[)/.test(source)) && MATH.exec(source);
    return found ? { type: "math", raw: found[0], text: found[0] } : undefined;
  },
});

/** Words up to what could mean something. `marked` looks for an address of mail from each letter on, to the end. */
const WORDS = /^(?:[`~]+|[^`~])[^]*?(?=[\\<!\[`*_~$]| {0,9}\n|https?:\/\/|www\.|$)/;

/** An address among words, with what may end a sentence. */
const ADDRESS = /^(?:https?:\/\/|www\.)[^\s<]{1,2000}/;

const tokenizer = {
  inlineText(source: string): Tokens.Text | undefined {
    const found = WORDS.exec(source)?.[0];
    return found ? { type: "text", raw: found, text: found, escaped: false } : undefined;
  },
  url(source: string): Tokens.Link | undefined {
    const found = ADDRESS.exec(source)?.[0];
    if (!found) return undefined;
    const ends = found.includes("(") ? "?!.,:;*_~'\"" : "?!.,:;*_~'\")";
    let length = found.length;
    while (ends.includes(found[length - 1] ?? " ")) length--;
    const raw = found.slice(0, length);
    const href = raw.startsWith("www.") ? `http://${raw}` : raw;
    return { type: "link", raw, text: raw, href, tokens: [{ type: "text", raw, text: raw }] };
  },
};

const reader = new Marked({ gfm: true, breaks: true, tokenizer, extensions: [mathematics("block"), mathematics("inline")] });

/** A text as its tokens; null where it isn't read. */
function read(text: string): Token[] | null {
  const blocks = text.slice(0, MAX_CHARS).replace(/\r\n?/g, "\n").replace(FENCED, "$1").split(/\n[ \t]*\n/);
  const many = (block: string, what: RegExp) => (block.match(what)?.length ?? 0) ** 2;
  const squares = blocks.reduce((sum, block) => sum + many(block, /[*_~`$<>\\[|]/g) + many(block, CONTINUED), 0);
  if (text.length > MAX_CHARS || squares > MAX_MARKS ** 2 || blocks.some((block) => DEEP.test(block))) return null;
  try {
    return reader.lexer(text);
  } catch (error) {
    if (error instanceof Error) return null; // what is nested without end
    throw error;
  }
}

export function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => read(text), [text]);
  if (!tokens) return <Text text={text} />;
  return (
    <div class="markdown" dir="auto">
      {nodes(tokens, 0)}
    </div>
  );
}

const nodes = (tokens: Token[] | undefined, depth: number): ComponentChildren =>
  tokens?.map((token) => (depth > MAX_DEPTH ? plain(token.raw) : node(token as Tokens.Generic, depth + 1)));

type Reading = (token: Tokens.Generic, depth: number) => ComponentChildren;

const READINGS: Record<string, Reading> = {
  space: () => null,
  paragraph: ({ tokens }, depth) => <p>{nodes(tokens, depth)}</p>,
  text: ({ tokens, text }, depth) => (tokens ? nodes(tokens, depth) : plain(text)),
  escape: ({ text }) => plain(text),
  heading: ({ tokens, depth: level }, depth) => <h3 class={`level-${level}`}>{nodes(tokens, depth)}</h3>,
  strong: ({ tokens }, depth) => <strong>{nodes(tokens, depth)}</strong>,
  em: ({ tokens }, depth) => <em>{nodes(tokens, depth)}</em>,
  del: ({ tokens }, depth) => <del>{nodes(tokens, depth)}</del>,
  br: () => <br />,
  hr: () => <hr />,
  codespan: ({ text }) => <code>{plain(text)}</code>,
  math: ({ text }) => <code class="math">{plain(text)}</code>,
  code: ({ text, lang }) => <Code text={text} lang={lang ?? ""} />,
  blockquote: ({ tokens }, depth) => <blockquote>{nodes(tokens, depth)}</blockquote>,
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  list: (token, depth) => {
    const { ordered, start, items } = token as Tokens.List;
    const children = items.map((item) => <li>{nodes(item.tokens, depth)}</li>);
    return ordered ? <ol start={Number(start)}>{children}</ol> : <ul>{children}</ul>;
  },
  table: (token, depth) => {
    const { header, rows } = token as Tokens.Table;
    const cells = (row: Tokens.TableCell[]) =>
      row.map(({ tokens, align, header }) => {
        const Cell = header ? "th" : "td";
        return <Cell class={align ?? ""}>{nodes(tokens, depth)}</Cell>;
      });
    return (
      <div class="table" tabIndex={0} role="group" aria-label="Table">
        <table>
          <thead>
            <tr>{cells(header)}</tr>
          </thead>
          <tbody>
            {rows.map((row) => {
              const said = row.findLastIndex(({ text }) => text) + 1; // a row of one letter has as many cells as the head
              return <tr>{cells(row.slice(0, said))}{said < row.length && <td colSpan={row.length - said} />}</tr>;
            })}
          </tbody>
        </table>
      </div>
    );
  },
  link: ({ tokens, href, text }, depth) => <Link href={href}>{text === href ? null : nodes(tokens, depth)}</Link>,
  image: ({ href, text }) => <Link href={href}>[image: {plain(text)}]</Link>,
};

/** What a token looks like; the text of one that isn't known, as HTML. */
const node: Reading = (token, depth) => READINGS[token.type]?.(token, depth) ?? (token.type === "space" ? null : plain(token.raw));

/** How much of an address is shown beside its host. */
const MAX_SHOWN = 80;

/** A link that says where it leads. One that leads elsewhere than to the web is its words. */
export function Link({ href, children }: { href: string; children?: ComponentChildren }) {
  const url = URL.canParse(href) ? new URL(href) : null;
  if (!url || !["https:", "http:", "mailto:"].includes(url.protocol)) return <>{children ?? plain(href)}</>;
  url.username = url.password = ""; // they would stand where the host does
  const most = url.host.length + MAX_SHOWN;
  const target = url.href.length > most ? `${url.href.slice(0, most)}…` : url.href;
  return (
    <>
      <a href={url.href} target="_blank" rel="noreferrer noopener" title={url.href}>{children ?? target}</a>
      {children && <span class="target"> ({target})</span>}
    </>
  );
}
