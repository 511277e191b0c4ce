// OpenAI's Agents SDK for JavaScript with its own traces, which its own exporters send to where
// TRACES_URLS says, comma-separated.

import assert from 'node:assert/strict'
import {
  Agent,
  BatchTraceProcessor,
  getGlobalTraceProvider,
  OpenAITracingExporter,
  run,
  setTraceProcessors,
  tool,
  withTrace,
} from '@openai/agents'
import { z } from 'zod'

const model = process.env.MODEL
const group = process.env.GROUP
const endpoints = process.env.TRACES_URLS.split(',')
setTraceProcessors(endpoints.map((endpoint) => new BatchTraceProcessor(new OpenAITracingExporter({ endpoint }))))

const getWeather = tool({
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `marmalade at 18 degrees in ${city}`,
})

export async function test_a_workflow_with_a_handoff_a_tool_and_two_runs_is_traced() {
  const other = new Agent({ name: 'Weather agent', model, tools: [getWeather], modelSettings: { toolChoice: 'required' } })
  const first = Agent.create({ name: 'Triage', model, handoffs: [other] })
  await withTrace(
    'Trip',
    async () => {
      const result = await run(first, 'Please transfer me to the weather agent, who knows marmalade.')
      assert.match(result.finalOutput, /18 degrees/)
      const again = await run(new Agent({ name: 'Poet', model }), 'Say hello.')
      assert.ok(again.finalOutput)
    },
    { groupId: `${group}-7`, metadata: { note: 'marmalade' } },
  )
  await getGlobalTraceProvider().forceFlush()
}
