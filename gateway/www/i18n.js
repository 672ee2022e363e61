// The page's words in English and Korean. The browser's language decides until the user chooses.

const en = {
  skip: 'Skip to the message box',
  sidebar: 'Conversations',
  showSidebar: 'Show conversations',
  hideSidebar: 'Hide conversations',
  newChat: 'New chat',
  today: 'Today',
  yesterday: 'Yesterday',
  week: 'Previous 7 days',
  older: 'Older',
  noChats: 'Your conversations will be listed here. They are kept in this browser only.',
  rename: 'Rename',
  renameOf: 'Rename “{title}”',
  newTitle: 'New title',
  remove: 'Delete',
  removeOf: 'Delete “{title}”',
  removeAsk: 'Delete this conversation?',
  removeText: '“{title}” will be removed from this browser. This cannot be undone.',
  cancel: 'Cancel',
  untitled: 'Untitled',
  answering: 'answering',
  themeAuto: 'Theme: system',
  themeLight: 'Theme: light',
  themeDark: 'Theme: dark',
  model: 'Model',
  modelsLoading: 'Loading models…',
  modelsNone: 'No models',
  key: 'Access key',
  keyNone: 'No key',
  keyFree: 'Free',
  keyPaid: 'Paid',
  keyOther: 'Other key…',
  keyTitle: 'Enter your access key',
  keyText: 'Every request to this server carries a key. It is kept in this browser and sent to this server only.',
  keyHint: 'Starting the server prints an address that already contains its keys.',
  keyField: 'Access key',
  keyWrong: 'A key has 4 to 512 letters, digits or signs, without spaces.',
  keyUse: 'Use this key',
  keyShow: 'Show the key',
  heroTitle: 'Ask, and let it flow.',
  heroText: 'Answers stream straight from the models on this server. Your conversations stay in this browser.',
  suggestions: 'Questions to start with',
  messages: 'Conversation',
  you: 'You',
  composer: 'Message',
  placeholder: 'Ask anything…',
  send: 'Send',
  stop: 'Stop',
  hint: 'Enter sends · Shift + Enter starts a new line · Esc stops',
  caution: 'Models make mistakes. Check what matters.',
  latest: 'Jump to the latest',
  copy: 'Copy',
  copyCode: 'Copy code',
  copied: 'Copied',
  copyFailed: 'Could not copy',
  edit: 'Edit',
  editField: 'Edit your message',
  editSend: 'Send again',
  regenerate: 'Regenerate',
  code: 'Code',
  table: 'Table',
  checked: 'done',
  unchecked: 'to do',
  thinking: 'Thinking',
  connecting: 'Opening the gate…',
  reconnecting: 'Connection lost. Reconnecting…',
  waiting: 'The engine is starting. Retrying in {n} s',
  ttft: '{n} ms to first token',
  tps: '{n} tokens/s',
  tokens: '{in} in · {out} out',
  tokensOut: '{out} tokens',
  endStopped: 'Stopped',
  endLength: 'Cut off at the length limit',
  endFilter: 'Held back by the content filter',
  endLost: 'Connection lost. What arrived is kept.',
  endGone: 'The rest of this answer was lost: the server no longer has it.',
  tryAgain: 'Try again',
  enterKey: 'Enter a key',
  e401: 'This key is not accepted',
  e401none: 'A key is needed',
  e403: 'This key may not do that',
  e404: 'This model is not available',
  e400: 'The request was not accepted',
  e413: 'The conversation is too long',
  e429: 'The limit of this key is reached',
  e429wait: 'You may try again in {n}.',
  e429now: 'You may try again now.',
  e503: 'The engine is not ready',
  e5xx: 'The server met an error',
  eNetwork: 'The server cannot be reached',
  eNetworkText: 'Check that it is running, then try again.',
  eStream: 'The answer broke off',
  seconds: '{n} s',
  minutes: '{n} min',
  hours: '{n} h',
  notSaved: 'This browser’s storage is full or off: this conversation lasts until the page is closed.',
  liveStarted: 'Sluice is answering.',
  liveDone: 'Answer: {text}',
  liveStopped: 'Stopped.',
  ask1: 'Ask a fact', ask1q: 'What is the capital of France?',
  ask2: 'Have it explained', ask2q: 'Explain what gravity is.',
  ask3: 'Hear a story', ask3q: 'Tell me a long story about a river.',
  ask4: 'Meet Sluice', ask4q: 'How does streaming work in Sluice?',
};

const ko = {
  skip: '메시지 입력으로 건너뛰기',
  sidebar: '대화 목록',
  showSidebar: '대화 목록 보기',
  hideSidebar: '대화 목록 숨기기',
  newChat: '새 대화',
  today: '오늘',
  yesterday: '어제',
  week: '지난 7일',
  older: '이전',
  noChats: '대화가 여기에 표시됩니다. 대화는 이 브라우저에만 저장됩니다.',
  rename: '이름 바꾸기',
  renameOf: '“{title}” 이름 바꾸기',
  newTitle: '새 제목',
  remove: '삭제',
  removeOf: '“{title}” 삭제',
  removeAsk: '이 대화를 삭제할까요?',
  removeText: '“{title}” 대화가 이 브라우저에서 지워집니다. 되돌릴 수 없습니다.',
  cancel: '취소',
  untitled: '제목 없음',
  answering: '답변 중',
  themeAuto: '테마: 시스템',
  themeLight: '테마: 밝게',
  themeDark: '테마: 어둡게',
  model: '모델',
  modelsLoading: '모델 불러오는 중…',
  modelsNone: '모델 없음',
  key: '액세스 키',
  keyNone: '키 없음',
  keyFree: '무료',
  keyPaid: '유료',
  keyOther: '다른 키…',
  keyTitle: '액세스 키를 입력하세요',
  keyText: '이 서버에 보내는 모든 요청에는 키가 필요합니다. 키는 이 브라우저에 저장되며 이 서버에만 전송됩니다.',
  keyHint: '서버를 시작하면 키가 포함된 주소가 출력됩니다.',
  keyField: '액세스 키',
  keyWrong: '키는 공백 없이 4~512자의 영문자, 숫자, 기호여야 합니다.',
  keyUse: '이 키 사용',
  keyShow: '키 표시',
  heroTitle: '물어보세요. 답이 흐릅니다.',
  heroText: '이 서버의 모델이 답을 바로바로 흘려보냅니다. 대화는 이 브라우저에만 남습니다.',
  suggestions: '시작하기 좋은 질문',
  messages: '대화',
  you: '나',
  composer: '메시지',
  placeholder: '무엇이든 물어보세요…',
  send: '보내기',
  stop: '중지',
  hint: 'Enter 보내기 · Shift + Enter 줄바꿈 · Esc 중지',
  caution: '모델은 틀릴 수 있습니다. 중요한 내용은 확인하세요.',
  latest: '최신 내용으로 이동',
  copy: '복사',
  copyCode: '코드 복사',
  copied: '복사됨',
  copyFailed: '복사하지 못함',
  edit: '수정',
  editField: '메시지 수정',
  editSend: '다시 보내기',
  regenerate: '다시 생성',
  code: '코드',
  table: '표',
  checked: '완료',
  unchecked: '할 일',
  thinking: '생각 과정',
  connecting: '수문을 여는 중…',
  reconnecting: '연결이 끊겨 다시 연결하는 중…',
  waiting: '엔진이 시작되는 중입니다. {n}초 후 다시 시도합니다',
  ttft: '첫 토큰까지 {n}ms',
  tps: '초당 {n}토큰',
  tokens: '입력 {in} · 출력 {out}',
  tokensOut: '{out}토큰',
  endStopped: '중지됨',
  endLength: '길이 제한에서 잘렸습니다',
  endFilter: '콘텐츠 필터로 보류되었습니다',
  endLost: '연결이 끊겼습니다. 받은 내용은 보관됩니다.',
  endGone: '이 답변의 나머지는 서버에 남아 있지 않아 사라졌습니다.',
  tryAgain: '다시 시도',
  enterKey: '키 입력',
  e401: '이 키는 사용할 수 없습니다',
  e401none: '키가 필요합니다',
  e403: '이 키로는 할 수 없는 작업입니다',
  e404: '이 모델은 사용할 수 없습니다',
  e400: '요청이 받아들여지지 않았습니다',
  e413: '대화가 너무 깁니다',
  e429: '이 키의 한도에 도달했습니다',
  e429wait: '{n} 후에 다시 시도할 수 있습니다.',
  e429now: '이제 다시 시도할 수 있습니다.',
  e503: '엔진이 준비되지 않았습니다',
  e5xx: '서버에 오류가 발생했습니다',
  eNetwork: '서버에 연결할 수 없습니다',
  eNetworkText: '서버가 실행 중인지 확인한 뒤 다시 시도하세요.',
  eStream: '답변이 중간에 끊겼습니다',
  seconds: '{n}초',
  minutes: '{n}분',
  hours: '{n}시간',
  notSaved: '브라우저 저장 공간이 가득 찼거나 꺼져 있어, 이 대화는 페이지를 닫으면 사라집니다.',
  liveStarted: 'Sluice가 답변하는 중입니다.',
  liveDone: '답변: {text}',
  liveStopped: '중지했습니다.',
  ask1: '사실 묻기', ask1q: '프랑스의 수도는 어디인가요?',
  ask2: '색깔 묻기', ask2q: '하늘은 무슨 색이에요?',
  ask3: '이야기 듣기', ask3q: '이야기 하나 해 주세요.',
  ask4: 'Sluice 알아보기', ask4q: 'What is Sluice?',
};

export const WORDS = { en, ko };

let current = 'en';

/** The language to begin with: the stored choice, else the first of the browser's that the page speaks. */
export function pickLanguage(stored, languages) {
  if (Object.hasOwn(WORDS, stored ?? '')) return stored;
  for (const tag of languages ?? []) {
    const base = String(tag).toLowerCase().split('-')[0];
    if (Object.hasOwn(WORDS, base)) return base;
  }
  return 'en';
}

export function setLanguage(language) { current = language; }
export const language = () => current;

/** The words for `name` with {placeholders} filled in. */
export function t(name, values = {}) {
  const text = WORDS[current][name] ?? en[name] ?? name;
  return text.replace(/\{(\w+)\}/g, (all, k) => (Object.hasOwn(values, k) ? String(values[k]) : all));
}

export function formatNumber(value, digits = 0) {
  return new Intl.NumberFormat(current, { maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value);
}

/** A wait in words, rounded up: 12 s, 3 min, 2 h. */
export function formatWait(ms) {
  const s = Math.max(1, Math.ceil(ms / 1000));
  if (s < 100) return t('seconds', { n: s });
  if (s < 5400) return t('minutes', { n: Math.ceil(s / 60) });
  return t('hours', { n: Math.ceil(s / 3600) });
}

/** Fills the fixed parts of the page: data-t sets the text, data-t-<attribute> an attribute. */
export function translatePage(root) {
  document.documentElement.lang = current;
  for (const el of root.querySelectorAll('[data-t]')) el.textContent = t(el.dataset.t);
  for (const el of root.querySelectorAll('[data-t-label]')) el.setAttribute('aria-label', t(el.dataset.tLabel));
  for (const el of root.querySelectorAll('[data-t-title]')) el.setAttribute('title', t(el.dataset.tTitle));
  for (const el of root.querySelectorAll('[data-t-placeholder]')) el.setAttribute('placeholder', t(el.dataset.tPlaceholder));
}
