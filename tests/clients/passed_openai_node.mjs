// The official client for Node, with Chat Completions and completions, which are passed on to a server of llama.cpp.

import assert from 'node:assert/strict'
import OpenAI from 'openai'

const model = process.env.MODEL
const client = new OpenAI({ maxRetries: 0 })
// with the system message that its template would add, this model answers nonsense
const messages = [
  { role: 'system', content: '' },
  { role: 'user', content: 'What is the capital of France?' },
]
const asked = { model, messages, temperature: 0, max_tokens: 20 }

export async function test_an_answer_has_its_text_and_its_usage() {
  const answer = await client.chat.completions.create(asked)
  assert.match(answer.choices[0].message.content, /Paris/)
  assert.ok(answer.usage.completion_tokens > 0)
}

export async function test_a_stream_adds_up_to_the_same_answer() {
  const whole = await client.chat.completions.create(asked)
  const stream = client.chat.completions.stream(asked)
  let written = ''
  stream.on('content', (delta) => (written += delta))
  const answer = await stream.finalChatCompletion()
  assert.equal(written, whole.choices[0].message.content)
  assert.equal(answer.choices[0].message.content, written)
}

export async function test_a_stream_can_be_left() {
  const stream = await client.chat.completions.create({ ...asked, stream: true, max_tokens: 500 })
  for await (const _ of stream) break
  assert.ok(stream.controller.signal.aborted)
}

export async function test_a_completion_goes_on_from_a_text() {
  const answer = await client.completions.create({ model, prompt: 'The capital of France is', max_tokens: 3, temperature: 0 })
  assert.ok(answer.choices[0].text)
}

export async function test_embeddings_of_a_model_that_makes_none_are_a_404() {
  await assert.rejects(client.embeddings.create({ model, input: 'x' }), OpenAI.NotFoundError)
}

export async function test_what_is_not_passed_on_is_refused_by_name() {
  const refused = client.chat.completions.create({ ...asked, chat_template: '{{ 1 }}' })
  await assert.rejects(refused, (error) => error instanceof OpenAI.BadRequestError && error.param === 'chat_template')
}
