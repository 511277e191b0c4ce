// The events of a background response: all that are kept, live while it runs, and played again at a speed.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, follow, pause } from "../../api";
import { folded, nothing } from "../../run";
import { eventsOf, isTerminal } from "../../stream";
import type { StreamEvent } from "../../wire";
import { Pieces } from "../composer";
import { Failure, Line, Loading, Text, count, isAborted, wordsOf } from "../text";

/** The most events that are kept here; a longer log is shown as far as that. */
const MAX_EVENTS = 20_000;

/** How many events are listed above the one that is shown. */
const LISTED = 60;

/** When what was lost is asked for again. */
const AGAIN_MS = 2_000;

const TICK_MS = 50;
const SPEEDS = [20, 100, 500];

export function Events({ id }: { id: string }) {
  const [events, setEvents] = useState<StreamEvent[]>([]);
  const [state, setState] = useState<"reading" | "whole" | "cut">("reading");
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const all: StreamEvent[] = [];
    let timer = 0;
    /** Whether all are read: not where the connection ends before the response does. */
    async function readMore(): Promise<boolean> {
      try {
        for await (const event of eventsOf(await follow(id, all.at(-1)?.sequence_number ?? -1, stop.signal))) {
          setError("");
          all.push(event);
          if (isTerminal(event) || all.length >= MAX_EVENTS) return true;
        }
      } catch (caught) {
        if (isAborted(caught) || (caught instanceof ApiError && caught.status >= 400 && caught.status < 500)) throw caught;
      }
      return false;
    }
    async function read() {
      timer = window.setInterval(() => setEvents((before) => (before.length === all.length ? before : [...all])), 100);
      try {
        while (!(await readMore())) {
          setError("The connection was lost. Trying again…");
          await pause(AGAIN_MS);
        }
        setState(all.length >= MAX_EVENTS ? "cut" : "whole");
      } catch (caught) {
        if (!isAborted(caught)) setError(wordsOf(caught));
      }
      clearInterval(timer);
      setEvents([...all]);
    }
    void read();
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [id]);
  if (error && !events.length) return <Failure error={error} />;
  if (!events.length) return <Loading what="events" />;
  return (
    <div class="events">
      <Failure error={error} />
      <Player events={events} />
      <p class="hint">
        {count(events.length, "event")}
        {state === "reading" ? " so far; more come as it runs." : state === "cut" ? "; those behind them aren't read." : "."}
      </p>
    </div>
  );
}

function Player({ events }: { events: StreamEvent[] }) {
  const [at, setAt] = useState<number | null>(null); // null: at the end, wherever that is
  const [speed, setSpeed] = useState(SPEEDS[0] ?? 1);
  const [plays, setPlays] = useState(false);
  const end = events.length - 1;
  const position = Math.min(at ?? end, end);
  const length = useRef(0);
  length.current = events.length;
  useEffect(() => {
    if (!plays) return;
    const timer = setInterval(() => {
      setAt((before) => {
        const next = (before ?? Infinity) + (speed * TICK_MS) / 1000; // null: it is over, and a late tick comes
        if (next < length.current - 1) return next;
        setPlays(false);
        return null;
      });
    }, TICK_MS);
    return () => clearInterval(timer);
  }, [plays, speed]);
  const shown = Math.floor(position);
  const log = useRef<HTMLOListElement>(null);
  const words = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    for (const box of [log.current, words.current]) box?.scrollTo(0, box.scrollHeight);
  }, [shown]);
  const live = useMemo(() => events.slice(0, shown + 1).reduce(folded, nothing), [events, shown]);
  const first = Math.max(0, shown - LISTED + 1);
  return (
    <>
      <div class="player">
        <button
          onClick={() => {
            if (!plays && (at === null || shown >= end)) setAt(0);
            setPlays(!plays);
          }}
        >
          {plays ? "Pause" : "Play"}
        </button>
        <input
          type="range"
          aria-label="Event"
          min={0}
          max={end}
          value={shown}
          onInput={(event) => {
            setPlays(false);
            setAt(Number(event.currentTarget.value));
          }}
        />
        <label>
          <span class="unshown">Events a second</span>
          <select value={speed} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>
            {SPEEDS.map((each) => <option value={each}>{each} a second</option>)}
          </select>
        </label>
      </div>
      {live.pieces.length > 0 && (
        <div ref={words} class="so-far" role="group" aria-label="What it says so far" tabIndex={0}>
          <Pieces live={live} Answer={Text} />
        </div>
      )}
      <ol ref={log} class="log" start={first} aria-label="Events" tabIndex={0}>
        {events.slice(first, shown + 1).map((event) => (
          <li key={event.sequence_number} class={event.sequence_number === events[shown]?.sequence_number ? "now" : ""}>
            <details>
              <summary>
                <span class="number">{event.sequence_number}</span>
                <code>{event.type}</code>
                {event.delta && <span class="delta"><Line text={event.delta} /></span>}
              </summary>
              <Text text={JSON.stringify(event, null, 2)} mono />
            </details>
          </li>
        ))}
      </ol>
    </>
  );
}
