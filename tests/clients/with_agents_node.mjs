// OpenAI's Agents SDK for JavaScript: tools, streams, structured output, and conversations kept here and there.

import assert from 'node:assert/strict'
import { Agent, OpenAIConversationsSession, run, setTracingDisabled, tool } from '@openai/agents'
import { z } from 'zod'

setTracingDisabled(true)

const model = process.env.MODEL
const weather = 'What is the weather in Paris? Use the tool.'
const getWeather = tool({
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `18 degrees in ${city}`,
})
const agent = (more) => new Agent({ name: 'Assistant', model, ...more })

export async function test_a_tool_s_output_is_in_the_answer() {
  const result = await run(agent({ tools: [getWeather] }), weather)
  assert.match(result.finalOutput, /18 degrees in Paris/)
}

export async function test_a_run_is_streamed_to_its_end() {
  const result = await run(agent({ tools: [getWeather] }), weather, { stream: true })
  let written = ''
  for await (const event of result) {
    if (event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta') written += event.data.delta
  }
  await result.completed
  assert.equal(written, result.finalOutput)
  assert.match(written, /18 degrees in Paris/)
}

export async function test_a_stream_with_a_summary_of_the_reasoning() {
  const modelSettings = { reasoning: { effort: 'low', summary: 'auto' } }
  const result = await run(agent({ modelSettings }), 'Count to 3.', { stream: true })
  await result.completed
  assert.equal(result.finalOutput, '1\n2\n3')
  assert.ok(result.newItems.some((item) => item.type === 'reasoning_item'))
}

export async function test_an_answer_has_the_shape_that_is_asked_for() {
  const result = await run(agent({ outputType: z.object({ city: z.string(), inhabitants: z.number() }) }), 'Tell me of Paris.')
  assert.equal(typeof result.finalOutput.city, 'string')
  assert.equal(typeof result.finalOutput.inhabitants, 'number')
}

export async function test_a_conversation_goes_on_from_the_last_response() {
  const first = await run(agent(), 'My name is Ada.')
  const second = await run(agent(), 'What is my name?', { previousResponseId: first.lastResponseId })
  assert.equal(second.finalOutput, 'Your name is Ada.')
}

export async function test_a_session_is_a_conversation_that_the_service_keeps() {
  const session = new OpenAIConversationsSession()
  await run(agent(), 'My name is Ada.', { session })
  const result = await run(agent(), 'What is my name?', { session })
  assert.equal(result.finalOutput, 'Your name is Ada.')
  assert.match(await session.getSessionId(), /^conv_/)
  assert.ok((await session.getItems()).length >= 4)
}
