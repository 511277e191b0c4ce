// OpenAI's Agents SDK for JavaScript: tools, streams, structured output, and conversations kept here and there.

import assert from 'node:assert/strict'
import {
  Agent,
  applyPatchTool,
  codeInterpreterTool,
  fileSearchTool,
  hostedMcpTool,
  OpenAIConversationsSession,
  run,
  setTracingDisabled,
  shellTool,
  tool,
  webSearchTool,
} from '@openai/agents'
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

const used = (result) => result.newItems.filter((item) => item.rawItem.type === 'hosted_tool_call').map((item) => item.rawItem)
const goesOn = async (result, tools) =>
  assert.ok((await run(agent({ tools }), [...result.history, { role: 'user', content: 'Say hello.' }])).finalOutput)

export async function test_a_call_of_the_service_s_waits_for_an_approval() {
  const tools = [
    hostedMcpTool({
      serverLabel: 'maths',
      serverUrl: process.env.MCP_URL,
      allowedTools: ['add'],
      requireApproval: 'always',
    }),
  ]
  const adding = agent({ tools })
  const asked = await run(adding, 'What is 2 plus 40? Use the add tool.')
  assert.equal(asked.interruptions.length, 1)
  asked.state.approve(asked.interruptions[0])
  const result = await run(adding, asked.state)
  assert.match(result.finalOutput, /42/)
  await goesOn(result, tools)
}

export async function test_the_web_is_searched_by_the_service() {
  const tools = [webSearchTool()]
  const result = await run(agent({ tools }), 'Search the web for "high water" please.')
  assert.equal(used(result).length, 2)
  assert.match(result.finalOutput, /tides\.md/)
  await goesOn(result, tools)
}

export async function test_code_is_run_by_the_service_in_a_stream() {
  const tools = [codeInterpreterTool()]
  const result = await run(agent({ tools }), 'Use python: print(6 * 7)', { stream: true })
  await result.completed
  assert.match(result.finalOutput, /42/)
  assert.equal(used(result).length, 1)
  await goesOn(result, tools)
}

export async function test_files_are_searched_by_the_service() {
  const tools = [fileSearchTool('vs_1', { includeSearchResults: true })]
  const result = await run(agent({ tools }), 'Search my files for "tides".')
  assert.match(result.finalOutput, /High water is at ten/)
  assert.equal(used(result).length, 1)
  await goesOn(result, tools)
}

export async function test_a_shell_s_commands_are_run_here() {
  const shell = {
    run: async ({ commands }) => ({
      output: [{ stdout: `ran ${commands.join(' and ')}\n`, stderr: '', outcome: { type: 'exit', exitCode: 0 } }],
    }),
  }
  const result = await run(agent({ tools: [shellTool({ shell })] }), 'Run the shell command "echo heron" for me.')
  assert.match(result.finalOutput, /ran echo heron/)
}

export async function test_a_patch_is_applied_here() {
  const asked = []
  const change = async (operation) => {
    asked.push(operation.type)
    return { status: 'completed', output: `changed ${operation.path}` }
  }
  const editor = { createFile: change, updateFile: change, deleteFile: change }
  const modelSettings = { toolChoice: 'apply_patch' }
  const result = await run(agent({ tools: [applyPatchTool({ editor })], modelSettings }), 'Please change a file.')
  assert.equal(asked.length, 1)
  assert.match(result.finalOutput, /changed /)
}
