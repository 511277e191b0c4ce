// Bars, each of parts that stand on one another. The picture alone: whoever draws it shows the numbers, too.

/** A bar: when it begins, in seconds since 1970, and its parts from below. */
export interface Series {
  start: number;
  parts: { colour: number; name: string; value: number }[];
}

/** The colour of what has none of its own. */
export const OTHERS = 5;

const HEIGHT = 180;
const STEP = 20;
const BAR = 14;

/** The most words below the bars. */
const MAX_WORDS = 8;

export function Chart({ label, bars, hours }: { label: string; bars: Series[]; hours: boolean }) {
  const highest = Math.max(1, ...bars.map(({ parts }) => parts.reduce((sum, { value }) => sum + value, 0)));
  const every = Math.ceil(bars.length / MAX_WORDS);
  return (
    <div class="chart">
      <div class="scale" aria-hidden="true">
        {[highest, highest / 2, 0].map((number) => (
          <span>{number.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 })}</span>
        ))}
      </div>
      <svg role="img" aria-label={label} viewBox={`0 0 ${bars.length * STEP} ${HEIGHT}`} preserveAspectRatio="none">
        {bars.map((bar, index) => <Bar key={bar.start} bar={bar} left={index * STEP + (STEP - BAR) / 2} unit={HEIGHT / highest} />)}
      </svg>
      <div class="moments" aria-hidden="true">
        {bars.map(({ start }, index) => <span>{index % every === 0 && momentOf(start, hours)}</span>)}
      </div>
    </div>
  );
}

function Bar({ bar, left, unit }: { bar: Series; left: number; unit: number }) {
  let top = HEIGHT;
  return (
    <g>
      {[...bar.parts]
        .sort((one, other) => one.colour - other.colour)
        .map(({ colour, name, value }) => {
          top -= value * unit;
          return (
            <rect class={`lane-${colour}`} x={left} y={top} width={BAR} height={value * unit}>
              <title>{`${name}: ${value.toLocaleString("en")}`}</title>
            </rect>
          );
        })}
    </g>
  );
}

function momentOf(start: number, hours: boolean): string {
  const date = new Date(start * 1000);
  return hours
    ? date.toISOString().slice(11, 16)
    : date.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
}
