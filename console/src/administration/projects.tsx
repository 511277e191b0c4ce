// All projects; making one, and changing its name and weight.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { toProject } from "../state";
import { Asking, Field, Opens } from "../views/dialog";
import { Line } from "../views/text";
import { Day, Mono, Pages } from "./pages";
import { type ChangedProject, PAGE, type Project, changeProject, createProject, projects } from "./requests";

const archived = signal(false);

export function Projects() {
  const isArchived = archived.value;
  return (
    <>
      <header class="heading">
        <h1>Projects</h1>
        <label class="check">
          <input type="checkbox" checked={isArchived} onChange={(event) => (archived.value = event.currentTarget.checked)} />
          Show archived
        </label>
        <Opens words="New project…" look="main">
          {(close) => <NewProject onClose={close} />}
        </Opens>
      </header>
      <Pages
        key={String(isArchived)}
        what="Projects"
        titles={["Name", "Id", "Created", "Archived"]}
        load={(after, signal) => projects(after, PAGE, isArchived, signal)}
        row={(project) => <Row key={project.id} project={project} />}
        empty={
          <>
            <h2>No projects yet</h2>
            <p>A project is a tenant of its own: its API keys see nothing of any other.</p>
          </>
        }
      />
    </>
  );
}

function Row({ project }: { project: Project }) {
  return (
    <tr>
      <th scope="row">
        <a href={toProject(project.id)}><Line text={project.name} /></a>
      </th>
      <Mono text={project.id} />
      <td>{project.static ? "in the settings" : <Day at={project.created_at} />}</td>
      <td>{project.archived_at === null ? "–" : <Day at={project.archived_at} />}</td>
    </tr>
  );
}

function NewProject({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const make = async () => (location.hash = toProject((await createProject(name)).id));
  return (
    <Asking title="New project" label="Create" act={make} done="The project is created." isReady={name.trim() !== ""} onClose={onClose}>
      <Field name="Name" value={name} onText={setName} />
    </Asking>
  );
}

interface Changing {
  project: Project;
  onDone: () => void;
  onClose: () => void;
}

export function ChangeProject({ project, ...rest }: Changing) {
  const before = String(project.weight ?? "");
  const [name, setName] = useState(project.name);
  const [weight, setWeight] = useState(before);
  const wished: ChangedProject = {};
  if (name !== project.name) wished.name = name;
  if (weight.trim() !== before) wished.weight = weight.trim() ? Number(weight) : null;
  async function change() {
    if (typeof wished.weight === "number" && !Number.isFinite(wished.weight))
      throw new Error("The weight should be a number such as 3 or 0.5, or empty.");
    await changeProject(project.id, wished);
  }
  return (
    <Asking
      title="Change the project"
      label="Save"
      act={change}
      done="The project is changed."
      isReady={Object.keys(wished).length > 0 && name.trim() !== ""}
      {...rest}
    >
      {!project.static && <Field name="Name" value={name} onText={setName} />}
      <Field name="Weight" inputMode="decimal" placeholder="from the settings, or 1" value={weight} onText={setWeight} />
      <p class="hint">When requests queue, a project with weight 3 gets three times as many tokens as one with weight 1.</p>
    </Asking>
  );
}
