// echo-chat.js: the page of the chat, on Laravel Echo and pusher-js.

import Echo from '/vendor/echo.js';

const get = (id) => document.getElementById(id);
const name = new URLSearchParams(location.search).get('name');
get('login').hidden = name !== null;
get('chat').hidden = name === null;
if (name !== null) enter(await (await fetch('/settings')).json());

function enter({ key, url }) {
  const { hostname, port, protocol } = new URL(url);
  const echo = new Echo({
    broadcaster: 'pusher',
    key,
    cluster: '',
    wsHost: hostname,
    wsPort: port || 80,
    wssPort: port || 443,
    forceTLS: protocol === 'https:',
    enabledTransports: ['ws', 'wss'],
    authEndpoint: '/broadcasting/auth',
    auth: { headers: { 'X-Name': name } },
  });
  echo.connector.pusher.connection.bind('state_change', ({ current }) => {
    get('chat').classList.toggle('offline', current !== 'connected');
    get('state').textContent = current === 'connected' ? 'Online' : 'Reconnecting…';
  });

  const people = new Map();
  const showPeople = () => {
    get('people').replaceChildren(...[...people.keys()].map((each) => element('li', each)));
  };
  let typing;
  const lobby = echo
    .join('lobby')
    .here((users) => {
      people.clear();
      for (const user of users) people.set(user.name, user);
      showPeople();
    })
    .joining((user) => {
      people.set(user.name, user);
      showPeople();
    })
    .leaving((user) => {
      people.delete(user.name);
      showPeople();
    })
    .listen('.message', show)
    .listenForWhisper('typing', ({ from }) => {
      clearTimeout(typing);
      get('typing').textContent = `${from} is typing…`;
      typing = setTimeout(() => get('typing').replaceChildren(), 3000);
    });

  let whisperedAt = 0;
  get('text').oninput = () => {
    if (Date.now() < whisperedAt + 2000) return;
    whisperedAt = Date.now();
    lobby.whisper('typing', { from: name });
  };
  get('form').onsubmit = async (event) => {
    event.preventDefault();
    const text = get('text').value;
    get('text').value = '';
    whisperedAt = 0; // the others stop showing it at the message
    const response = await fetch('/messages', {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        'X-Name': name,
        'X-Socket-ID': echo.socketId(),
      },
      body: JSON.stringify({ text }),
    }).catch(() => null);
    if (response?.ok) show(await response.json());
    else {
      get('text').value ||= text;
      get('typing').textContent = 'Not sent. Please try again.';
    }
  };
}

function show({ from, text }) {
  const line = element('li', element('b', from), element('span', text));
  line.classList.toggle('mine', from === name);
  get('messages').append(line);
  line.scrollIntoView({ block: 'end' });
  if (from !== name) get('typing').replaceChildren();
}

function element(tag, ...content) {
  const node = document.createElement(tag);
  node.append(...content);
  return node;
}
