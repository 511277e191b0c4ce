// openapi-fetch, with the types that openapi-typescript makes of the service's own document. This file is checked by
// TypeScript against them: what `@ts-expect-error` marks must not fit.
// @ts-check

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import createClient from 'openapi-fetch'

/** @typedef {import('./document.d.ts').components['schemas']} Schemas */

const model = process.env.MODEL ?? ''
const url = (process.env.OPENAI_BASE_URL ?? '').replace(/\/v1$/, '')
/** @typedef {import('./document.d.ts').paths} Paths */
/** @type {import('openapi-fetch').Client<Paths, 'application/json'>} */
const client = createClient({ baseUrl: url })
/** @type {import('openapi-fetch').Client<Paths, 'text/plain'>} */
const texting = createClient({ baseUrl: url })
/** @type {import('openapi-fetch').Client<Paths, 'application/octet-stream'>} */
const bytes = createClient({ baseUrl: url })

/** @param {string[]} words */
function run(...words) {
  const done = spawnSync(process.execPath, words, { encoding: 'utf8' })
  assert.equal(done.status, 0, done.stdout + done.stderr)
  return done.stdout + done.stderr
}

/**
 * What an operation answers.
 * @template T
 * @param {Promise<{ data?: T, error?: unknown, response: Response }>} asked
 * @returns {Promise<T>}
 */
async function answer(asked) {
  const { data, error, response } = await asked
  assert.ok(data !== undefined, `${response.status} ${JSON.stringify(error)}`)
  return data
}

/** @param {Omit<Schemas['CreateResponse'], 'model'>} body */
const create = (body) => answer(client.POST('/v1/responses', { body: { model, ...body } }))

/** @param {Schemas['ResponseObject']} response */
const texts = (response) =>
  response.output.flatMap((item) => (item.type === 'message' ? item.content.map((part) => part.text) : [])).join('')

/** @type {Schemas['InputItem']} */
const hello = { role: 'user', content: [{ type: 'input_text', text: 'Hello.' }] }

export async function test_the_calls_below_have_the_types_of_the_document() {
  const made = run('node_modules/openapi-typescript/bin/cli.js', `${url}/openapi.json`, '-o', 'document.d.ts')
  assert.doesNotMatch(made, /warn|⚠/i)
  run(
    ...['node_modules/typescript/bin/tsc', '--noEmit', '--strict', '--allowJs', '--module', 'nodenext'],
    ...['--target', 'es2023', '--lib', 'es2023,dom', '--types', 'node', '--typeRoots', 'node_modules/@types'],
    fileURLToPath(import.meta.url),
  )
}

export async function test_a_response_is_made_continued_retrieved_and_deleted() {
  const first = await create({ input: 'My boat is called Vesper.' })
  assert.equal(first.status, 'completed')
  const second = await create({ input: [hello], previous_response_id: first.id })
  assert.ok(texts(second))
  const path = { response_id: second.id }
  const include = /** @type {Schemas['Include'][]} */ (['reasoning.encrypted_content'])
  const found = await answer(client.GET('/v1/responses/{response_id}', { params: { path, query: { include } } }))
  assert.equal(found.previous_response_id, first.id)
  const items = await answer(client.GET('/v1/responses/{response_id}/input_items', { params: { path } }))
  assert.equal(items.data[0].type, 'message')
  assert.ok((await answer(client.DELETE('/v1/responses/{response_id}', { params: { path } }))).deleted)
}

export async function test_a_tool_is_called_and_its_output_taken() {
  /** @type {Schemas['Tool'][]} */
  const tools = [
    {
      type: 'function',
      name: 'get_weather',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  ]
  const first = await create({ input: 'What is the weather in Paris? Use the tool.', tools })
  const call = first.output.find((item) => item.type === 'function_call')
  assert.ok(call)
  /** @type {Schemas['InputItem']} */
  const told = { type: 'function_call_output', call_id: call.call_id, output: '18 degrees' }
  assert.match(texts(await create({ input: [told], previous_response_id: first.id, tools })), /18/)
}

export async function test_each_event_of_a_stream_has_its_type() {
  const body = { model, input: 'Count from 1 to 5.', stream: true }
  const { data } = await client.POST('/v1/responses', { body, parseAs: 'text' })
  assert.ok(data)
  /** @type {Schemas['ResponseStreamEvent'][]} */
  const events = [...String(data).matchAll(/^data: (\{.*)$/gm)].map(([, json]) => JSON.parse(json))
  const said = events.map((event) => (event.type === 'response.output_text.delta' ? event.delta : '')).join('')
  const last = events.at(-1)
  assert.equal(last?.type, 'response.completed')
  assert.equal(texts(last.response), said)
}

export async function test_a_background_response_is_steered_and_another_one_cancelled() {
  const waiting = await create({ input: 'Count to 100000.', background: true })
  const steered = await answer(
    client.POST('/v1/responses/{response_id}/steer', {
      params: { path: { response_id: waiting.id }, header: { 'Idempotency-Key': 'once' } },
      body: { input: 'Stop at 10.' },
    }),
  )
  assert.equal(steered.steer.previous_response_id, waiting.id)
  const other = await create({ input: 'Count to 100000.', background: true })
  const ended = await answer(
    client.POST('/v1/responses/{response_id}/cancel', {
      params: { path: { response_id: other.id } },
      headers: { 'content-type': 'application/json' },
    }),
  )
  assert.equal(ended.status, 'cancelled')
}

export async function test_tokens_are_counted_and_a_conversation_is_compacted() {
  assert.ok((await answer(client.POST('/v1/responses/input_tokens', { body: { input: 'Hi.' } }))).input_tokens > 10)
  const made = await answer(client.POST('/v1/responses/compact', { body: { model, input: [hello] } }))
  assert.equal(made.output.at(-1)?.type, 'compaction')
}

export async function test_a_conversation_and_its_items_are_made_changed_listed_and_deleted() {
  const body = { items: [hello], metadata: { client: 'fetch' } }
  const made = await answer(client.POST('/v1/conversations', { body }))
  const path = { conversation_id: made.id }
  const params = { path }
  assert.deepEqual(await answer(client.GET('/v1/conversations/{conversation_id}', { params })), made)
  const query = { metadata: { client: 'fetch' }, limit: 5 }
  const listed = await answer(client.GET('/v1/conversations', { params: { query } }))
  assert.ok(listed.data.some((each) => each.id === made.id))
  const added = await answer(
    client.POST('/v1/conversations/{conversation_id}/items', { params, body: { items: [hello] } }),
  )
  const item_id = added.data[0].id
  const items = await answer(client.GET('/v1/conversations/{conversation_id}/items', { params }))
  assert.equal(items.data.length, 2)
  const of = { params: { path: { ...path, item_id } } }
  const item = await answer(client.GET('/v1/conversations/{conversation_id}/items/{item_id}', of))
  assert.equal(item.type, 'message')
  await answer(client.DELETE('/v1/conversations/{conversation_id}/items/{item_id}', of))
  const changed = { params, body: { metadata: null } }
  assert.deepEqual((await answer(client.POST('/v1/conversations/{conversation_id}', changed))).metadata, {})
  assert.ok((await answer(client.DELETE('/v1/conversations/{conversation_id}', { params }))).deleted)
}

export async function test_a_container_and_its_files_are_made_listed_and_deleted() {
  const made = await answer(client.POST('/v1/containers', { body: { name: 'fetch' } }))
  const path = { container_id: made.id }
  const params = { path }
  assert.equal((await answer(client.GET('/v1/containers/{container_id}', { params }))).name, 'fetch')
  const listed = await answer(client.GET('/v1/containers', { params: { query: { limit: 5 } } }))
  assert.ok(listed.data.some((each) => each.id === made.id))
  const sent = await answer(
    client.POST('/v1/containers/{container_id}/files', {
      params,
      body: { file: '1,2' },
      bodySerializer({ file }) {
        const form = new FormData()
        form.append('file', new Blob([file]), 'sums.csv')
        return form
      },
    }),
  )
  assert.equal(sent.path, '/mnt/data/sums.csv')
  const files = await answer(client.GET('/v1/containers/{container_id}/files', { params }))
  assert.deepEqual(files.data, [sent])
  const of = { params: { path: { ...path, file_id: sent.id } } }
  assert.deepEqual(await answer(client.GET('/v1/containers/{container_id}/files/{file_id}', of)), sent)
  const content = { ...of, parseAs: /** @type {const} */ ('text') }
  const got = await bytes.GET('/v1/containers/{container_id}/files/{file_id}/content', content)
  assert.equal(got.data, '1,2')
  await answer(client.DELETE('/v1/containers/{container_id}/files/{file_id}', of))
  assert.ok((await answer(client.DELETE('/v1/containers/{container_id}', { params }))).deleted)
}

export async function test_a_batch_is_made_of_an_uploaded_file_and_its_answers_are_downloaded() {
  const line = { custom_id: 'first', method: 'POST', url: '/v1/responses', body: { model, input: 'Hi.' } }
  const sent = await answer(
    client.POST('/v1/files', {
      body: { file: JSON.stringify(line), purpose: 'batch' },
      bodySerializer({ file, purpose }) {
        const form = new FormData()
        form.append('purpose', purpose)
        form.append('file', new Blob([file]), 'lines.jsonl')
        return form
      },
    }),
  )
  const of = { params: { path: { file_id: sent.id } } }
  assert.deepEqual(await answer(client.GET('/v1/files/{file_id}', of)), sent)
  const query = { limit: 5 }
  const files = await answer(client.GET('/v1/files', { params: { query } }))
  assert.ok(files.data.some((each) => each.id === sent.id))
  /** @type {Schemas['CreateBatch']} */
  const body = { input_file_id: sent.id, endpoint: '/v1/responses', completion_window: '24h' }
  let made = await answer(client.POST('/v1/batches', { body }))
  const path = { batch_id: made.id }
  const batches = await answer(client.GET('/v1/batches', { params: { query } }))
  assert.ok(batches.data.some((each) => each.id === made.id))
  while (made.status !== 'completed') {
    assert.doesNotMatch(made.status, /failed|expired|cancelled/)
    made = await answer(client.GET('/v1/batches/{batch_id}', { params: { path } }))
  }
  const output = { params: { path: { file_id: made.output_file_id ?? '' } }, parseAs: /** @type {const} */ ('text') }
  const got = await bytes.GET('/v1/files/{file_id}/content', output)
  assert.equal(JSON.parse(String(got.data)).custom_id, 'first')
  const other = await answer(client.POST('/v1/batches', { body }))
  const headers = { 'content-type': 'application/json' }
  const cancelled = { params: { path: { batch_id: other.id } }, headers }
  assert.match((await answer(client.POST('/v1/batches/{batch_id}/cancel', cancelled))).status, /cancell/)
  assert.ok((await answer(client.DELETE('/v1/files/{file_id}', of))).deleted)
}

export async function test_a_trajectory_has_its_response() {
  const made = await create({ input: 'Count to 2.' })
  const query = { id: made.id, format: /** @type {const} */ ('gym') }
  const told = await answer(bytes.GET('/v1/trajectories', { params: { query }, parseAs: 'text' }))
  assert.equal(JSON.parse(String(told)).harmonium.id, made.id)
}

export async function test_the_models_and_the_state_of_the_service_are_told() {
  const { data } = await answer(client.GET('/v1/models'))
  assert.ok(data.some((each) => each.id === model))
  const named = { params: { path: { model_id: model } } }
  assert.equal((await answer(client.GET('/v1/models/{model_id}', named))).object, 'model')
  assert.equal((await answer(client.GET('/'))).name, 'harmonium')
  assert.equal((await answer(client.GET('/health'))).status, 'ok')
  assert.equal((await answer(client.GET('/ready'))).store, 'ok')
  assert.match(await answer(texting.GET('/metrics', { parseAs: 'text' })), /harmonium_build_info/)
}

export async function test_what_is_refused_has_an_envelope_and_what_does_not_fit_has_no_type() {
  /** @type {Schemas['CreateResponse']} */
  // @ts-expect-error: the document has no such member
  const body = { model, inputt: 'Hi.' }
  const wrong = await client.POST('/v1/responses', { body })
  assert.equal(wrong.error?.error.code, 'unknown_parameter')
  // @ts-expect-error: this is a number
  const hot = await client.POST('/v1/responses', { body: { model, input: 'Hi.', temperature: 'hot' } })
  assert.equal(hot.error?.error.param, 'temperature')
  const upgrade = await client.GET('/v1/responses')
  assert.equal(upgrade.response.status, 426)
}

export async function test_what_would_be_passed_on_is_refused_where_no_server_is_behind() {
  const messages = [{ role: 'user', content: 'Hi.' }]
  const chat = await client.POST('/v1/chat/completions', { body: { model, messages } })
  assert.equal(chat.response.status, 200) // it is made here, as messages are
  const completion = await client.POST('/v1/completions', { body: { model, prompt: 'Hi.' } })
  assert.equal(completion.response.status, 404)
  const embedding = await client.POST('/v1/embeddings', { body: { model, input: 'Hi.' } })
  assert.equal(embedding.response.status, 404)
  const message = await client.POST('/v1/messages', { body: { model, messages, max_tokens: 9 } })
  assert.equal(message.response.status, 200)
  const counted = await client.POST('/v1/messages/count_tokens', { body: { model, messages } })
  assert.equal(counted.response.status, 200)
  const unknown = await client.POST('/v1/messages', { body: { model: 'unknown', messages, max_tokens: 9 } })
  assert.equal(unknown.error?.error.type, 'not_found_error')
  const ranked = await client.POST('/v1/rerank', { body: { model, query: 'Hi.', documents: ['Ho.'] } })
  assert.equal(ranked.response.status, 404)
  const scored = await client.POST('/v1/score', { body: { model, text_1: 'Hi.', text_2: 'Ho.' } })
  assert.equal(scored.response.status, 404)
  const decided = await client.POST('/v1/decisions', { body: { model, input: 'Hi.', questions: [] } })
  assert.equal(decided.response.status, 404)
  const spoken = await client.POST('/v1/audio/transcriptions', {
    body: { model, file: 'RIFF' },
    bodySerializer({ model, file }) {
      const form = new FormData()
      form.append('model', model)
      form.append('file', new Blob([file]), 'a.wav')
      return form
    },
  })
  assert.equal(spoken.response.status, 404)
}
