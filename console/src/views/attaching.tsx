// What is sent with a message: pictures that its model sees, and texts. Why anything else isn't is said.
import { useState } from "preact/hooks";
import { models } from "../api";
import type { Part } from "../wire";
import { Failure, Line, size, wordsOf } from "./text";

/** The most files of a message, and the most bytes of them: a service takes 8 MiB by default, and of three bytes four are sent. */
const MAX_FILES = 10;
const MAX_BYTES = 5 << 20;

const PICTURES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif"]);

interface Attached {
  name: string;
  bytes: number;
  part: Part;
}

export interface Attachments {
  parts: Part[];
  /** Attach files, as far as they can be. */
  add: (files: Iterable<File>) => Promise<void>;
  clear: () => void;
  shown: Attached[];
  remove: (one: Attached) => void;
  refused: string;
}

/** The files of a message to this model. */
export function useAttachments(model: string): Attachments {
  const [shown, setShown] = useState<Attached[]>([]);
  const [refused, setRefused] = useState("");
  async function add(files: Iterable<File>) {
    const all = [...shown];
    const why: string[] = [];
    try {
      for (const file of files) {
        const reason = await reasonAgainst(file, model, all);
        if (reason) why.push(`${file.name} isn't attached: ${reason}.`);
        else all.push({ name: file.name, bytes: file.size, part: await partOf(file) });
      }
    } catch (error) {
      why.push(wordsOf(error));
    }
    setShown(all);
    setRefused(why.join(" "));
  }
  function clear() {
    setShown([]);
    setRefused("");
  }
  return { parts: shown.map(({ part }) => part), add, clear, shown, remove: (one) => setShown(shown.filter((each) => each !== one)), refused };
}

async function reasonAgainst(file: File, model: string, before: Attached[]): Promise<string> {
  if (before.length >= MAX_FILES) return `a message has ${MAX_FILES} files at most`;
  if (before.reduce((sum, { bytes }) => sum + bytes, file.size) > MAX_BYTES) return `the files of a message have ${size(MAX_BYTES)} at most`;
  if (!PICTURES.has(file.type)) return (await isText(file)) ? "" : "it is neither a picture nor a text in UTF-8";
  const known = (await models()).find(({ id }) => id === model);
  return known?.architecture?.input_modalities?.includes("image") ? "" : `${model} sees no pictures`;
}

async function isText(file: File): Promise<boolean> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text !== "" && !text.includes("\0") && !text.startsWith("%PDF");
  } catch (error) {
    if (error instanceof TypeError) return false;
    throw error;
  }
}

async function partOf(file: File): Promise<Part> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  if (PICTURES.has(file.type)) return { type: "input_image", image_url: url };
  return { type: "input_file", filename: file.name, file_data: url };
}

/** What is attached, and why something isn't. */
export function Attaching({ shown, remove, refused }: Attachments) {
  return (
    <>
      {shown.length > 0 && (
        <ul class="sources" aria-label="Attached">
          {shown.map((each) => (
            <li>
              <Line text={`${each.name}, ${size(each.bytes)}`} />{" "}
              <button type="button" aria-label={`Remove ${each.name}`} onClick={() => remove(each)}>Remove</button>
            </li>
          ))}
        </ul>
      )}
      <Failure error={refused} />
    </>
  );
}
