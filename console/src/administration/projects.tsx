// All projects, and making one.
import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { said, toProject } from "../state";
import { Failure, Line, wordsOf } from "../views/text";
import { Day, Dialog, Pages } from "./pages";
import { PAGE, type Project, createProject, projects } from "./requests";

const archived = signal(false);

export function Projects() {
  const [making, setMaking] = useState(false);
  const isArchived = archived.value;
  return (
    <>
      <header class="heading">
        <h1>Projects</h1>
        <label class="check">
          <input type="checkbox" checked={isArchived} onChange={(event) => (archived.value = event.currentTarget.checked)} />
          with archived ones
        </label>
        <button class="main" onClick={() => setMaking(true)}>
          New project…
        </button>
      </header>
      <Pages
        key={String(isArchived)}
        what="Projects"
        load={(after, signal) => projects(after, PAGE, isArchived, signal)}
        head={
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Id</th>
            <th scope="col">Created</th>
            <th scope="col">Archived</th>
          </tr>
        }
        row={(project) => <Row key={project.id} project={project} />}
        empty={
          <>
            <h2>No projects yet</h2>
            <p>A project is a tenant of its own: its keys see nothing of any other.</p>
          </>
        }
      />
      {making && <NewProject onClose={() => setMaking(false)} />}
    </>
  );
}

function Row({ project }: { project: Project }) {
  return (
    <tr>
      <th scope="row">
        <a href={toProject(project.id)}>
          <Line text={project.name} />
        </a>
      </th>
      <td class="mono">
        <Line text={project.id} />
      </td>
      <td>{project.static ? "in the settings" : <Day at={project.created_at} />}</td>
      <td>{project.archived_at === null ? "–" : <Day at={project.archived_at} />}</td>
    </tr>
  );
}

function NewProject({ onClose }: { onClose: () => void }) {
  const box = useRef<HTMLInputElement>(null);
  const [name, setName] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  async function make(event: SubmitEvent) {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      const made = await createProject(name);
      said.value = "The project is created.";
      onClose();
      location.hash = toProject(made.id);
    } catch (caught) {
      setError(wordsOf(caught));
      setBusy(false);
    }
  }
  return (
    <Dialog label="new-project" onClose={onClose} first={() => box.current}>
      <form onSubmit={make}>
        <h2 id="new-project">New project</h2>
        <label class="field">
          <span>Name</span>
          <input ref={box} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <Failure error={error} />
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main" disabled={busy || !name.trim()}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
