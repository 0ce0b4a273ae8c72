// What the agents of the suite share: one question to the model.
export const API = 'https://api.openai.com';
export const NEWS = 'https://news.example';
export const EVIL = 'https://evil.example';

export async function body(url, value, more = {}) {
  const post = value === undefined ? {} : {method: 'POST', body: JSON.stringify(value)};
  const answer = await fetch(url, {...post, headers: {'content-type': 'application/json'}, ...more});
  return answer.json();
}

export async function ask(content, more = {}) {
  const say = {model: 'm', messages: [{role: 'user', content}], ...more};
  const headers = {'content-type': 'application/json', authorization: `Bearer ${process.env.OPENAI_API_KEY ?? 'x'}`};
  const answer = await fetch(`${API}/v1/chat/completions`, {method: 'POST', headers, body: JSON.stringify(say)});
  return answer.ok ? (await answer.json()).choices[0].message.content : `${answer.status}`;
}
