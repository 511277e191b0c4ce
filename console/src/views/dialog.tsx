// Dialogs, and the forms in them: what is asked before something is made, changed or deleted.
import type { ComponentChildren, Ref, TextareaHTMLAttributes } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { said } from "../state";
import { useDoing } from "./loading";
import { Failure, Line } from "./text";

interface Opened {
  title: ComponentChildren;
  onClose: () => void;
  /** Whether Escape leaves it open. */
  stays?: boolean;
  children: ComponentChildren;
}

/** A dialog that is open while it is there; the focus goes back to where it was. */
export function Dialog({ title, onClose, stays = false, children }: Opened) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="dialog" onClose={onClose} onCancel={(event) => stays && event.preventDefault()}>
      <h2 id="dialog">{title}</h2>
      {children}
    </dialog>
  );
}

interface Asked<T> extends Opened {
  /** The button that does it. */
  label: string;
  /** Does it. What it throws is shown, and the dialog stays. */
  act: () => Promise<T>;
  /** What is said once it is done. */
  done: string;
  onDone?: (made: T) => void;
  isReady?: boolean;
  /** Whether it deletes: then Cancel has the focus. */
  deletes?: boolean;
}

/** A dialog with a form, which closes once that is done. */
export function Asking<T>({ label, act, done, onDone, isReady = true, deletes = false, onClose, children, ...opened }: Asked<T>) {
  const { busy, error, attempt } = useDoing();
  function send(event: SubmitEvent) {
    event.preventDefault();
    void attempt(async () => {
      const made = await act();
      said.value = done;
      onClose();
      onDone?.(made);
    });
  }
  return (
    <Dialog {...opened} onClose={onClose}>
      <form onSubmit={send}>
        {children}
        <Failure error={error} />
        <footer>
          <button type="button" autofocus={deletes} onClick={onClose}>Cancel</button>
          <button type="submit" class={deletes ? "danger" : "main"} disabled={busy || !isReady}>
            {label}
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

interface Opening {
  words: string;
  /** What is said in place of the words to whoever doesn't see beside what they stand. */
  name?: string | undefined;
  look?: "" | "main" | "danger";
  children: (close: () => void) => ComponentChildren;
}

/** A button that opens a dialog, which stays as it was opened whatever is loaded below it. */
export function Opens({ words, name = words, look = "", children }: Opening) {
  const [opened, setOpened] = useState<Opening["children"] | null>(null);
  return (
    <>
      <button type="button" class={look} aria-label={name} onClick={() => setOpened(() => children)}>{words}</button>
      {opened?.(() => setOpened(null))}
    </>
  );
}

interface Choosing {
  words: string;
  title: string;
  /** What the box of files is called. */
  name: string;
  accept?: string;
  multiple?: boolean;
  disabled?: boolean;
  onFiles: (files: File[]) => void;
}

/** A button with which files are chosen. */
export function ChooseFiles({ words, title, name, accept = "", multiple = false, disabled = false, onFiles }: Choosing) {
  const box = useRef<HTMLInputElement>(null);
  function choose({ currentTarget: chosen }: { currentTarget: HTMLInputElement }) {
    onFiles([...(chosen.files ?? [])]);
    chosen.value = ""; // so that the same file can be chosen again
  }
  return (
    <>
      <button type="button" title={title} disabled={disabled} onClick={() => box.current?.click()}>{words}</button>
      <input ref={box} type="file" hidden aria-label={name} accept={accept} multiple={multiple} onChange={choose} />
    </>
  );
}

/** What stands behind one button where there is no room for it, and in its place where there is. */
export function Folded({ words, children }: { words: string; children: ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="narrow" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {words}
      </button>
      <div class={isOpen ? "folded open" : "folded"}>{children}</div>
    </>
  );
}

interface Deleted {
  label: string;
  /** The name of what is deleted. */
  of: string;
  /** What tells the button from others to whoever doesn't see beside what it stands. */
  name?: string;
  meaning: string;
  act: () => Promise<unknown>;
  done: string;
  onDone: () => void;
}

/** A button that asks, and then deletes. */
export function Deletes({ label, of, name, meaning, ...asked }: Deleted) {
  const title = <>{label} <Line text={of} />?</>;
  return (
    <Opens words={`${label}…`} name={name} look="danger">
      {(close) => (
        <Asking deletes title={title} label={label} onClose={close} {...asked}>
          <p>{meaning} This can't be undone.</p>
        </Asking>
      )}
    </Opens>
  );
}

interface Typed {
  name: string;
  value: string | undefined;
  onText: (text: string) => void;
  placeholder?: string;
  inputMode?: "numeric" | "decimal";
  spellcheck?: boolean;
  /** Whether it may have several lines. */
  isLong?: boolean;
}

/** A line of a form to write in, or more of them. */
export function Field({ name, onText, isLong = false, ...rest }: Typed) {
  const box = { ...rest, autocomplete: "off" as const, onInput: (event: InputEvent) => onText((event.currentTarget as HTMLInputElement).value) };
  return (
    <label class="field">
      <span>{name}</span>
      {isLong ? <textarea rows={1} {...box} /> : <input {...box} />}
    </label>
  );
}

/** A box for words that Ctrl+Enter sends. */
export function Words({ box = null, onText, ...rest }: { box?: Ref<HTMLTextAreaElement>; onText: (text: string) => void } & TextareaHTMLAttributes) {
  return (
    <textarea
      ref={box}
      dir="auto"
      onInput={(event) => onText(event.currentTarget.value)}
      onKeyDown={(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.currentTarget.form?.requestSubmit()}
      {...rest}
    />
  );
}

interface Chosen {
  name: string;
  value: string;
  /** Values and their words. */
  options: [string, string][];
  onChange: (value: string) => void;
  isField?: boolean;
}

/** One of several, in a form or above a list. */
export function Choice({ name, value, options, onChange, isField = false }: Chosen) {
  return (
    <label class={isField ? "field" : ""}>
      <span>{name}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([id, words]) => <option value={id}>{words}</option>)}
      </select>
    </label>
  );
}
