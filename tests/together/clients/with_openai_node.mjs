// The official client for Node, by its helpers: parse with zod, stream, and what it makes of items that it sends back.

import assert from 'node:assert/strict'
import OpenAI, { toFile } from 'openai'
import { ResponsesWS } from 'openai/resources/responses/ws'
import { zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod'
import { z } from 'zod'

const model = process.env.MODEL
const client = new OpenAI({ maxRetries: 0 })
const weather = zodResponsesFunction({
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: z.object({ city: z.string() }),
})
const asked = 'What is the weather in Paris and London? Use the tool.'

const outputs = (response) =>
  response.output
    .filter((item) => item.type === 'function_call')
    .map((call) => ({
      type: 'function_call_output',
      call_id: call.call_id,
      output: `18 degrees in ${JSON.parse(call.arguments).city}`,
    }))

export async function test_an_answer_has_its_text_and_the_id_of_its_request() {
  const response = await client.responses.create({ model, input: 'Say hello.' })
  assert.equal(response.status, 'completed')
  assert.ok(response.output_text)
  assert.ok(response._request_id)
}

export async function test_the_stream_helper_adds_up_to_the_final_response() {
  let written = ''
  const stream = client.responses.stream({ model, input: 'Count from 1 to 5.' })
  stream.on('response.output_text.delta', (event) => (written += event.delta))
  const response = await stream.finalResponse()
  assert.equal(response.output_text, written)
  assert.match(written, /5/)
}

export async function test_parse_gives_an_object_of_the_zod_schema() {
  const city = z.object({ city: z.string(), inhabitants: z.number().int(), rivers: z.array(z.string()) })
  const text = { format: zodTextFormat(city, 'city') }
  const response = await client.responses.parse({ model, input: 'Tell me of Paris.', text })
  assert.deepEqual(city.parse(response.output_parsed), response.output_parsed)
}

export async function test_a_parsed_stream_ends_with_an_object_of_the_zod_schema() {
  const text = { format: zodTextFormat(z.object({ city: z.string() }), 'city') }
  const response = await client.responses.stream({ model, input: 'Tell me of Paris.', text }).finalResponse()
  assert.equal(typeof response.output_parsed.city, 'string')
}

export async function test_parse_gives_the_arguments_of_a_zod_function() {
  const asked = { model, input: 'Good morning.', tool_choice: 'required', tools: [weather] }
  const response = await client.responses.parse(asked)
  const call = response.output.find((item) => item.type === 'function_call')
  assert.equal(typeof call.parsed_arguments.city, 'string')
}

export async function test_parallel_calls_are_answered_by_previous_response_id() {
  const first = await client.responses.create({ model, input: asked, tools: [weather] })
  const input = outputs(first)
  assert.equal(input.length, 2)
  const second = await client.responses.create({ model, input, tools: [weather], previous_response_id: first.id })
  assert.match(second.output_text, /18 degrees in Paris[^]*18 degrees in London/)
}

export async function test_a_stateless_tool_loop_sends_reasoning_back_sealed() {
  const kept = { model, tools: [weather], store: false, include: ['reasoning.encrypted_content'] }
  const input = [{ role: 'user', content: asked }]
  const first = await client.responses.stream({ ...kept, input }).finalResponse()
  assert.ok(first.output.find((item) => item.type === 'reasoning').encrypted_content)
  input.push(...first.output.map(({ parsed_arguments, ...item }) => item), ...outputs(first))
  assert.match((await client.responses.create({ ...kept, input })).output_text, /18 degrees in London/)
}

export async function test_a_streamed_summary_of_reasoning_is_the_item_s() {
  let written = ''
  const stream = client.responses.stream({ model, input: 'Say hello.', reasoning: { summary: 'auto' } })
  stream.on('response.reasoning_summary_text.delta', (event) => (written += event.delta))
  const response = await stream.finalResponse()
  assert.ok(written)
  assert.equal(response.output[0].summary.map((part) => part.text).join(''), written)
}

export async function test_a_stream_in_the_background_is_resumed() {
  const events = []
  const stream = await client.responses.create({ model, input: 'Count from 1 to 20.', background: true, stream: true })
  for await (const event of stream) {
    events.push(event)
    if (events.length === 3) break
  }
  const after = { stream: true, starting_after: events.at(-1).sequence_number }
  for await (const event of await client.responses.retrieve(events[0].response.id, after)) events.push(event)
  assert.equal(events.at(-1).type, 'response.completed')
  assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()])
}

export async function test_a_chain_that_is_not_there_is_told_by_its_code() {
  const gone = { model, input: 'Hello.', previous_response_id: `resp_${'0'.repeat(48)}` }
  await assert.rejects(client.responses.create(gone), (error) => error.code === 'previous_response_not_found')
}

export async function test_a_websocket_holds_a_conversation_of_which_nothing_is_stored() {
  const socket = new ResponsesWS(client)
  const answered = (asked) =>
    new Promise((resolve, reject) => {
      socket.once('response.completed', (event) => resolve(event.response))
      socket.once('error', reject)
      socket.send({ type: 'response.create', model, store: false, ...asked })
    })
  try {
    const first = await answered({ input: 'Hello! My name is Ada.' })
    const second = await answered({ input: 'What is my name?', previous_response_id: first.id })
    assert.match(JSON.stringify(second.output), /Ada/)
  } finally {
    socket.close()
  }
}

export async function test_a_response_is_steered_over_its_websocket() {
  const socket = new ResponsesWS(client)
  const seen = []
  try {
    const text = await new Promise((resolve, reject) => {
      socket.once('response.output_text.delta', () =>
        socket.send({ type: 'response.steer', previous_response_id: seen[0].response.id, input: 'Count to 3.' }),
      )
      socket.on('event', (event) => {
        seen.push(event)
        if (event.type === 'response.completed') resolve(event.response.output_text ?? JSON.stringify(event.response.output))
      })
      socket.once('error', reject)
      socket.send({ type: 'response.create', model, input: 'Count to 10000.' })
    })
    assert.match(text, /1(\n|\\n)2(\n|\\n)3/)
  } finally {
    socket.close()
  }
  const created = seen.filter((event) => event.type === 'response.created')
  const steered = seen.find((event) => event.type === 'response.incomplete')
  assert.equal(steered.response.incomplete_details.reason, 'steered')
  assert.equal(created[1].response.previous_response_id, created[0].response.id)
  assert.ok(seen.some((event) => event.type === 'response.steer.accepted'))
}

export async function test_a_background_response_is_steered() {
  const stream = await client.responses.create({ model, input: 'Count to 10000.', background: true, stream: true })
  const events = []
  for await (const event of stream) {
    events.push(event)
    if (events.length === 1) {
      const path = `/responses/${event.response.id}/steer`
      assert.equal((await client.post(path, { body: { input: 'Count to 3.' } })).type, 'response.steer.accepted')
    }
  }
  const successor = events.at(-1).response.harmonium.succeeded_by
  let made = await client.responses.retrieve(successor)
  while (made.status !== 'completed') made = await client.responses.retrieve(successor)
  assert.match(made.output_text, /1\n2\n3/)
}

const maths = { type: 'mcp', server_label: 'maths', server_url: process.env.MCP_URL, allowed_tools: ['add'] }
const sum = 'What is 2 plus 40? Use the add tool.'
const of = (response, type) => response.output.filter((item) => item.type === type)

export async function test_a_call_of_a_server_s_tool_is_approved_and_made() {
  const asked = await client.responses.create({ model, input: sum, tools: [maths] })
  const [request] = of(asked, 'mcp_approval_request')
  const made = await client.responses.create({
    model,
    previous_response_id: asked.id,
    tools: [maths],
    input: [{ type: 'mcp_approval_response', approval_request_id: request.id, approve: true }],
  })
  assert.equal(of(made, 'mcp_call')[0].output, '42')
  assert.match(made.output_text, /42/)
}

export async function test_code_runs_in_a_container_that_has_files() {
  const container = await client.containers.create({ name: 'sums' })
  await client.containers.files.create(container.id, { file: new File(['41'], 'a.txt') })
  const response = await client.responses.create({
    model,
    input: "Use python: print(int(open('/mnt/data/a.txt').read()) + 1)",
    tools: [{ type: 'code_interpreter', container: container.id }],
    include: ['code_interpreter_call.outputs'],
  })
  const [call] = of(response, 'code_interpreter_call')
  assert.deepEqual(call.outputs, [{ type: 'logs', logs: '42\n' }])
  const [file] = (await client.containers.files.list(container.id)).data
  const content = await client.containers.files.content.retrieve(file.id, { container_id: container.id })
  assert.equal(await content.text(), '41')
  await client.containers.delete(container.id)
}

export async function test_a_search_of_the_web_is_cited_in_a_stream() {
  const stream = client.responses.stream({
    model,
    input: 'Search the web for "high water" please.',
    tools: [{ type: 'web_search' }],
  })
  const kinds = []
  for await (const event of stream) kinds.push(event.type)
  const response = await stream.finalResponse()
  assert.ok(kinds.includes('response.web_search_call.searching'))
  assert.ok(kinds.includes('response.output_text.annotation.added'))
  assert.deepEqual(of(response, 'web_search_call').map((item) => item.action.type), ['search', 'open_page'])
  assert.equal(response.output.at(-1).content[0].annotations[0].title, 'Tides')
}

export async function test_a_search_of_files_has_results() {
  const response = await client.responses.create({
    model,
    input: 'Search my files for "tides".',
    tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }],
    include: ['file_search_call.results'],
  })
  const [search] = of(response, 'file_search_call')
  assert.deepEqual(search.queries, ['tides'])
  assert.deepEqual(search.results.map((each) => each.filename), ['tides.md', 'moon.md'])
}

export async function test_a_file_lives_as_the_client_has_it() {
  const content = 'The word is heron.'
  const file = await toFile(Buffer.from(content), 'notes.txt')
  const made = await client.files.create({ file, purpose: 'user_data', expires_after: { anchor: 'created_at', seconds: 3600 } })
  assert.deepEqual([made.filename, made.bytes, made.expires_at], ['notes.txt', content.length, made.created_at + 3600])
  assert.deepEqual(await client.files.waitForProcessing(made.id), made)
  assert.equal(await (await client.files.content(made.id)).text(), content)
  const ids = []
  for await (const each of client.files.list({ purpose: 'user_data' })) ids.push(each.id)
  assert.ok(ids.includes(made.id))
  const input = [{ role: 'user', content: [{ type: 'input_file', file_id: made.id }, { type: 'input_text', text: 'Hello.' }] }]
  assert.equal((await client.responses.create({ model, input })).status, 'completed')
  assert.ok((await client.files.delete(made.id)).deleted)
  await assert.rejects(client.files.retrieve(made.id), OpenAI.NotFoundError)
}

export async function test_a_batch_is_made_and_its_answers_are_fetched() {
  const line = (number) => ({
    custom_id: `line-${number}`,
    method: 'POST',
    url: '/v1/responses',
    body: { model, input: `Count to ${number}.` },
  })
  const lines = [1, 2, 3].map((number) => JSON.stringify(line(number))).join('\n')
  const file = await client.files.create({ file: await toFile(Buffer.from(lines), 'lines.jsonl'), purpose: 'batch' })
  const asked = { input_file_id: file.id, endpoint: '/v1/responses', completion_window: '24h', metadata: { a: 'b' } }
  const begun = await client.batches.create(asked)
  assert.equal(begun.status, 'validating')
  const ended = ['completed', 'failed', 'expired', 'cancelled']
  let batch = begun
  while (!ended.includes(batch.status)) {
    await new Promise((resolve) => setTimeout(resolve, 200))
    batch = await client.batches.retrieve(begun.id)
  }
  assert.deepEqual([batch.status, batch.request_counts], ['completed', { total: 3, completed: 3, failed: 0 }])
  assert.ok(batch.usage.output_tokens > 0)
  const answers = (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n').map((each) => JSON.parse(each))
  assert.deepEqual(answers.map((each) => each.custom_id).sort(), ['line-1', 'line-2', 'line-3'])
  assert.ok(answers.every((each) => each.response.status_code === 200))
  const ids = []
  for await (const each of client.batches.list({ limit: 1 })) ids.push(each.id)
  assert.ok(ids.includes(batch.id))
  await assert.rejects(client.batches.cancel(batch.id), (error) => error.status === 409)
}
