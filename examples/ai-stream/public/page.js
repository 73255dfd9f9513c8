// page.js: the page: asks, follows an answer to its end, and stops it.

import { read } from './ai/index.js';
import { Fanfare } from './client/index.js';

const get = (id) => document.getElementById(id);
const id = new URLSearchParams(location.search).get('answer');

get('form').onsubmit = async (event) => {
  event.preventDefault();
  const { value, placeholder } = get('question');
  const response = await fetch('answers', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ question: value || placeholder }),
  });
  location.search = `answer=${(await response.json()).id}`;
};

function show(text, isBusy) {
  const isAtEnd = scrollY + innerHeight > document.body.scrollHeight - 80;
  get('answer').append(text);
  get('answer').ariaBusy = String(isBusy);
  get('stop').hidden = !isBusy;
  get('ask').hidden = isBusy;
  if (isAtEnd) scrollTo(0, document.body.scrollHeight);
}

async function follow() {
  const url = await (await fetch('server-url')).text();
  const token = async () => (await fetch(`answers/${id}/token`)).text();
  const fanfare = new Fanfare(url, { token });
  fanfare.on('state', (state) => {
    get('state').textContent = state;
  });
  const run = read(fanfare, `ai.${id}`);
  get('stop').onclick = () => run.stop();
  for await (const chunk of run) show(chunk, true);
  show('', false);
}

if (id !== null) {
  get('hint').hidden = true;
  get('views').hidden = false;
  get('tab').href = `?answer=${id}`;
  follow().catch((error) => {
    get('state').textContent = error.message;
  });
}
