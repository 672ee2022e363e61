// SPDX-License-Identifier: Apache-2.0
// A stand-in for a server that runs models, and fails as the requested model's name says. It knows OpenAI's chat API as far as
// the tests need it.
import http from 'node:http';

/** Answers with events: objects are chunks' choices or whole events, strings go out as they are. */
function stream(res, events) {
  res.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
  for (const e of events) res.write(typeof e === 'string' ? e : `data: ${JSON.stringify(e)}\n\n`);
}
const delta = (d, finish = null, more = {}) => ({ id: 'x', object: 'chat.completion.chunk', choices: [{ index: 0, delta: d, finish_reason: finish, ...more }] });
const says = (text) => [...text.matchAll(/\S+\s*/g)].map(([word]) => delta({ content: word }));
const usage = (prompt, completion) => ({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion } });
const DONE = 'data: [DONE]\n\n';
const call = (index, more) => delta({ tool_calls: [{ index, ...more }] });

const fail = (status, body, headers = {}) => (req, res) => {
  res.writeHead(status, { 'content-type': 'application/json', ...headers });
  res.end(JSON.stringify(body));
};
const error = (message, code = null) => ({ error: { message, type: 'x', code } });

/** What each model does with a request. `other`: where redirects lead. */
function behaviours(mock) {
  return {
    fine: (req, res) => { stream(res, [...says('Hello brave new world'), delta({}, 'stop'), usage(7, 4), DONE]); res.end(); },
    uncounted: (req, res) => { stream(res, [...says('one two three'), delta({}, 'stop'), DONE]); res.end(); },
    thinks: (req, res) => {
      stream(res, [delta({ role: 'assistant', content: '' }), delta({ reasoning_content: 'Let me ' }), delta({ reasoning_content: 'see </think>' }), delta({ content: 'It is <think>, ' }),
        delta({ content: '<tool_call>.' }), delta({}, 'stop'), usage(7, 9), DONE]);
      res.end();
    },
    calls: (req, res) => {
      stream(res, [delta({ content: 'I look.' }), call(0, { id: 'a', type: 'function', function: { name: 'find', arguments: '' } }), call(0, { function: { arguments: '{"te' } }),
        call(0, { function: { arguments: 'xt": "a \\"b\\" </tool_call> \\u00e9 é"}' } }), call(1, { id: 'b', type: 'function', function: { name: 'find', arguments: '{oops' } }),
        call(1, { function: { arguments: '\\' } }), delta({}, 'tool_calls'), usage(7, 9), DONE]);
      res.end();
    },
    vectors: fail(200, { object: 'list', data: [{ object: 'embedding', index: 0, embedding: [3, 4] }], usage: { prompt_tokens: 3, total_tokens: 3 } }),
    short_vectors: fail(200, { object: 'list', data: [{ object: 'embedding', index: 0, embedding: [3] }] }),
    key: fail(401, error('bad key sk-123')),
    unknown: fail(404, error('no model unknown')),
    limited: fail(429, error('slow down'), { 'retry-after': '7' }),
    refused: fail(400, error("'temperature' must be below 1")),
    too_long: fail(400, error("This model's maximum context length is 10 tokens.", 'context_length_exceeded')),
    broken: fail(500, error('Traceback: secret')),
    redirect: (req, res) => { res.writeHead(307, { location: `http://127.0.0.1:${mock.other.address().port}/v1/chat/completions` }); res.end(); },
    endless_line: (req, res) => {
      stream(res, says('begins '));
      const more = () => { while (!res.destroyed && res.write('data: x'.repeat(1000))); };
      res.on('drain', more);
      res.write('data: ');
      more();
    },
    header_bomb: (req, res) => {
      const bomb = Array.from({ length: 2000 }, (_, i) => `x-${i}: ${'y'.repeat(100)}\r\n`).join('');
      res.socket.write(`HTTP/1.1 200 OK\r\n${bomb}\r\n`);
    },
    header_line: (req, res) => {
      const more = () => { while (!res.socket.destroyed && res.socket.write('y'.repeat(10000))); };
      res.socket.on('drain', more);
      res.socket.write('HTTP/1.1 200 OK\r\nx: ');
      more();
    },
    no_stream: (req, res) => { res.writeHead(200, { 'content-type': 'text/html' }); res.end('<html>'); },
    garbage: (req, res) => { res.socket.end('220 mail.example ESMTP\r\n'); },
    bad_json: (req, res) => { stream(res, [...says('begins '), 'data: {"choices": [oops\n\n']); },
    wrong_index: (req, res) => { stream(res, [{ choices: [{ index: 5, delta: { content: 'x' } }] }]); },
    deep: (req, res) => { stream(res, [`data: ${'['.repeat(5000)}\n\n`]); },
    cut: (req, res) => { stream(res, says('begins well ')); setTimeout(() => res.socket.destroy(), 50); },
    ends_early: (req, res) => { stream(res, says('begins well ')); res.end(); },
    done_early: (req, res) => { stream(res, [...says('begins '), DONE]); res.end(); },
    stall: (req, res) => { stream(res, says('begins ')); },
    silent: () => {},
    slow: (req, res) => {
      stream(res, says('begins '));
      const timer = setInterval(() => res.write(': still here\n\n'), 50);
      res.on('close', () => clearInterval(timer));
    },
    full: fail(503, error('The server is full', 'overloaded'), { 'retry-after': '7' }),
    away: fail(503, error('secret: no workers')),
    full_event: (req, res) => { stream(res, [...says('begins '), error('full', 'overloaded')]); res.end(); },
    away_event: (req, res) => { stream(res, [...says('begins '), error('gone', 'engine_unavailable')]); res.end(); },
    error_event: (req, res) => { stream(res, [...says('begins '), error('out of memory')]); res.end(); },
    filtered: (req, res) => { stream(res, [...says('begins '), delta({}, 'content_filter'), DONE]); res.end(); },
    negative: (req, res) => { stream(res, [...says('one two'), delta({}, 'stop'), usage(7, -5), DONE]); res.end(); },
    huge: (req, res) => { stream(res, [...says('one two'), delta({}, 'stop'), usage(7, 1e9), DONE]); res.end(); },
    huge_prompt: (req, res) => { stream(res, [...says('one two'), delta({}, 'stop'), usage(1e12, 2), DONE]); res.end(); },
    endless: (req, res) => {
      const text = `data: ${JSON.stringify(delta({ content: 'word '.repeat(20) }))}\n\n`;
      stream(res, []);
      mock.written = 0;
      const more = () => { while (!res.destroyed) { mock.written += text.length; if (!res.write(text)) break; } };
      res.on('drain', more);
      more();
    },
    waits: (req, res) => { stream(res, says('begins ')); },
    /* Every other request loses its connection before anything of a response was sent. */
    flaky: (req, res) => {
      mock.flaky = (mock.flaky ?? 0) + 1;
      if (mock.flaky % 2) res.socket.destroy();
      else mock.models.fine(req, res);
    },
  };
}

/** metrics: what /metrics answers, a text or a handler (req, res); looks: how often. {url, names, asked: bodies in order, closed: names of models whose responses were cut by the client, elsewhere: requests at the other address, stop()} */
export async function startMock({ port = 0 } = {}) {
  const mock = { asked: [], closed: [], elsewhere: [], keys: new Set(), lists: 0, down: false, looks: 0, metrics: null };
  mock.models = behaviours(mock);
  mock.names = Object.keys(mock.models);
  mock.other = http.createServer((req, res) => { mock.elsewhere.push(req.headers); res.end(); }).listen(0, '127.0.0.1');
  const server = http.createServer((req, res) => {
    res.shouldKeepAlive = false; // libcurl repeats by itself what fails on a kept connection
    mock.keys.add(req.headers.authorization);
    if (req.url === '/metrics') {
      mock.looks++;
      if (typeof mock.metrics === 'function') return mock.metrics(req, res);
      res.writeHead(mock.metrics === null ? 404 : 200, { 'content-type': 'text/plain; version=0.0.4' });
      return res.end(mock.metrics ?? '');
    }
    if (req.url.endsWith('/models')) {
      mock.lists++;
      if (mock.down) return fail(500, error('down'))(req, res);
      return fail(200, { object: 'list', data: [{ id: 'fine', object: 'model', max_model_len: 12345 }] })(req, res);
    }
    let text = '';
    req.setEncoding('utf8').on('data', (d) => { text += d; });
    return req.on('end', () => {
      const body = JSON.parse(text);
      mock.asked.push({ path: req.url, body });
      res.on('close', () => { if (!res.writableFinished) mock.closed.push(body.model); });
      res.on('error', () => {});
      mock.models[body.model](req, res);
    });
  });
  server.on('clientError', (e, socket) => socket.destroy());
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  mock.port = server.address().port;
  mock.url = `http://127.0.0.1:${mock.port}/v1`;
  mock.stop = async () => {
    mock.other.close();
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  return mock;
}
