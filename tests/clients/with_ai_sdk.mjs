// Vercel's AI SDK: tools over several steps, streams with reasoning, structured output, history of each kind.

import assert from 'node:assert/strict'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, isStepCount, Output, streamText, tool } from 'ai'
import { z } from 'zod'

const openai = createOpenAI()
const model = openai.responses(process.env.MODEL)
const tools = {
  get_weather: tool({
    description: 'The weather of a city.',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `18 degrees in ${city}`,
  }),
}
const looped = { model, tools, stopWhen: isStepCount(4), maxRetries: 0 }
const plain = { model, maxRetries: 0, include: { requestBody: true } }
const prompt = 'What is the weather in Paris? Use the tool.'
const introduced = 'Hello! My name is Ada. What is the weather in Paris? Use the tool.'
const thinking = (more) => ({ openai: { forceReasoning: true, reasoningSummary: 'auto', ...more } })

const asks = (content) => ({ role: 'user', content })

async function all(stream) {
  const parts = []
  for await (const part of stream) {
    if (part.type === 'error') throw part.error
    parts.push(part)
  }
  return parts
}

export async function test_a_tool_s_output_is_in_the_answer() {
  const result = await generateText({ ...looped, prompt })
  assert.equal(result.steps.length, 2)
  assert.match(result.text, /18 degrees in Paris/)
}

export async function test_parallel_calls_are_all_answered() {
  const result = await generateText({ ...looped, prompt: 'What is the weather in Paris and London? Use the tool.' })
  assert.deepEqual(result.steps[0].toolCalls.map((call) => call.input.city), ['Paris', 'London'])
  assert.match(result.text, /18 degrees in Paris[^]*18 degrees in London/)
}

export async function test_a_run_with_a_tool_is_streamed() {
  const result = streamText({ ...looped, prompt })
  const kinds = (await all(result.fullStream)).map((part) => part.type)
  const wanted = ['tool-input-delta', 'tool-call', 'tool-result', 'text-delta']
  assert.deepEqual(wanted.filter((kind) => !kinds.includes(kind)), [])
  assert.equal(kinds.at(-1), 'finish')
  assert.match(await result.text, /18 degrees in Paris/)
}

export async function test_a_tool_is_chosen_by_its_name() {
  const toolChoice = { type: 'tool', toolName: 'get_weather' }
  const result = await generateText({ ...plain, tools, toolChoice, prompt: 'Good morning.' })
  assert.equal(typeof result.toolCalls[0].input.city, 'string')
}

export async function test_structured_output_comes_by_a_zod_schema() {
  const schema = z.object({ city: z.string(), inhabitants: z.number().int() })
  const result = await generateText({ ...plain, output: Output.object({ schema }), prompt: 'Tell me of Paris.' })
  assert.deepEqual(schema.parse(result.output), result.output)
}

export async function test_structured_output_is_streamed_in_parts() {
  const schema = z.object({ cities: z.array(z.string()).min(1) })
  const result = streamText({ ...plain, output: Output.object({ schema }), prompt: 'Name cities.' })
  const parts = []
  for await (const part of result.partialOutputStream) parts.push(part)
  assert.deepEqual(parts.at(-1), schema.parse(await result.output))
}

export async function test_a_summary_of_reasoning_is_streamed_as_reasoning() {
  const result = streamText({ ...plain, prompt: 'Say hello.', providerOptions: thinking() })
  const written = (await all(result.fullStream)).filter((part) => part.type === 'reasoning-delta')
  assert.ok(written.map((part) => part.text).join(''))
  assert.ok(await result.reasoningText)
}

export async function test_stored_items_are_sent_back_as_references() {
  const first = await generateText({ ...looped, prompt: introduced, providerOptions: thinking() })
  const messages = [asks(introduced), ...first.responseMessages, asks('What is my name?')]
  const second = await generateText({ ...plain, messages, providerOptions: thinking() })
  assert.match(JSON.stringify(second.request.body), /item_reference/)
  assert.match(second.text, /Ada/)
}

export async function test_a_history_without_a_store_brings_its_sealed_reasoning_back() {
  const providerOptions = thinking({ store: false })
  const first = await generateText({ ...looped, prompt: introduced, providerOptions })
  const messages = [asks(introduced), ...first.responseMessages, asks('What is my name?')]
  const second = await generateText({ ...plain, messages, providerOptions })
  assert.match(JSON.stringify(second.request.body), /encrypted_content/)
  assert.match(second.text, /Ada/)
}

export async function test_what_was_said_is_recalled_by_previous_response_id() {
  const first = await generateText({ ...plain, prompt: 'My name is Ada.' })
  const previousResponseId = first.providerMetadata.openai.responseId
  const providerOptions = { openai: { previousResponseId } }
  const second = await generateText({ ...plain, prompt: 'What is my name?', providerOptions })
  assert.match(second.text, /Ada/)
}
