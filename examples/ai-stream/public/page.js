// page.js: the page: asks, stops, and shows a view.

import { followByClient, followBySse } from './viewer.js';

const get = (id) => document.getElementById(id);
const parameters = new URLSearchParams(location.search);
const id = parameters.get('answer');

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
get('stop').onclick = () => fetch(`answers/${id}/stop`, { method: 'POST' });

function show({ text, isDone }) {
  const isAtEnd = scrollY + innerHeight > document.body.scrollHeight - 80;
  get('answer').textContent = text;
  get('answer').ariaBusy = String(!isDone);
  get('stop').hidden = isDone;
  get('ask').hidden = !isDone;
  if (isAtEnd) scrollTo(0, document.body.scrollHeight);
}

if (id !== null) {
  get('hint').hidden = true;
  get('views').hidden = false;
  get('tab').href = `?answer=${id}`;
  get('sse').href = `?answer=${id}&by=sse`;
  const follow = parameters.get('by') === 'sse' ? followBySse : followByClient;
  const url = await (await fetch('server-url')).text();
  const onState = (state) => {
    get('state').textContent = state;
  };
  follow(id, url, { onChange: show, onState }).catch((error) => onState(error.message));
}
