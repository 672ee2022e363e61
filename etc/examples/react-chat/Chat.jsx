// SPDX-License-Identifier: Apache-2.0
// A chat with a Sluice server in one React component: streaming, Stop, errors, and an answer that goes on after a reload.
import { useEffect, useRef, useState } from 'react';
import { createClient } from './client.js';

// A page must not hold a key of yours: ask your own backend for a token of the user who is logged in.
const client = createClient({
  baseURL: 'https://llm.example.org',
  getToken: async () => (await fetch('/api/llm-token')).text(),
});
const KEPT = 'react-chat';

function load() {
  try { return JSON.parse(sessionStorage.getItem(KEPT)) ?? []; } catch { return []; }
}

export default function Chat({ model }) {
  const [messages, setMessages] = useState(load);
  const [status, setStatus] = useState('');
  const [draft, setDraft] = useState('');
  const run = useRef(null);

  // The messages as they stand survive a reload. The last one has `stream` while it is being answered.
  useEffect(() => sessionStorage.setItem(KEPT, JSON.stringify(messages)), [messages]);

  async function read(answer) {
    run.current = answer;
    const show = (fields) => setMessages((all) => [...all.slice(0, -1), { ...all.at(-1), ...fields }]);
    setStatus('…');
    try {
      for await (const event of answer) {
        if (event.type === 'waiting') setStatus(event.resuming ? 'Reconnecting…' : `Busy, again in ${Math.ceil(event.ms / 1000)} s`);
        if (event.type === 'open') show({ stream: event.state?.id });
        if (event.type === 'delta') { setStatus('…'); show({ content: answer.text }); }
      }
      setStatus('');
    } catch (error) {
      setStatus(error.code === 'stream_lost' ? 'The rest of this answer was lost.' : error.message);
    }
    if (answer.status === 'detached') return; // the effect below left it; the next one takes it up
    show({ stream: undefined });
    if (run.current === answer) run.current = null;
  }

  // An answer that was under way is read again from its beginning, so that nothing is lost or repeated.
  useEffect(() => {
    const stream = messages.at(-1)?.stream;
    if (stream) read(client.resume({ id: stream }));
    return () => run.current?.detach(); // leaving this view does not end the answer; Stop does
  }, []);

  function send(event) {
    event.preventDefault();
    if (!draft.trim() || run.current) return;
    const asked = [...messages.map(({ role, content }) => ({ role, content })), { role: 'user', content: draft }];
    setMessages([...asked, { role: 'assistant', content: '' }]);
    setDraft('');
    read(client.chat({ model, messages: asked }));
  }

  return (
    <form onSubmit={send}>
      {messages.map(({ role, content }, i) => <p key={i} className={role}>{content}</p>)}
      <p role="status">{status}</p>
      <input value={draft} onChange={(event) => setDraft(event.target.value)} aria-label="Message" />
      <button>Send</button>
      <button type="button" onClick={() => run.current?.stop()}>Stop</button>
    </form>
  );
}
