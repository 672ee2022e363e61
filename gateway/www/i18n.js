// The page's words in English and Korean. The browser's language decides until the user chooses.

export const LANGUAGES = ['en', 'ko'];

export const words = {
  skip: ['Skip to the message box', '메시지 입력으로 건너뛰기'],
  sidebar: ['Conversations', '대화 목록'],
  showSidebar: ['Show conversations', '대화 목록 보기'],
  hideSidebar: ['Hide conversations', '대화 목록 숨기기'],
  newChat: ['New chat', '새 대화'],
  today: ['Today', '오늘'],
  yesterday: ['Yesterday', '어제'],
  week: ['Previous 7 days', '지난 7일'],
  older: ['Older', '이전'],
  noChats: ['Your conversations will be listed here. They are kept in this browser only.', '대화가 여기에 표시됩니다. 대화는 이 브라우저에만 저장됩니다.'],
  rename: ['Rename', '이름 바꾸기'],
  renameOf: ['Rename “{title}”', '“{title}” 이름 바꾸기'],
  newTitle: ['New title', '새 제목'],
  remove: ['Delete', '삭제'],
  removeOf: ['Delete “{title}”', '“{title}” 삭제'],
  removeAsk: ['Delete this conversation?', '이 대화를 삭제할까요?'],
  removeText: ['“{title}” will be removed from this browser. This cannot be undone.', '“{title}” 대화가 이 브라우저에서 지워집니다. 되돌릴 수 없습니다.'],
  cancel: ['Cancel', '취소'],
  untitled: ['Untitled', '제목 없음'],
  answering: ['answering', '답변 중'],
  themeAuto: ['Theme: system', '테마: 시스템'],
  themeLight: ['Theme: light', '테마: 밝게'],
  themeDark: ['Theme: dark', '테마: 어둡게'],
  model: ['Model', '모델'],
  modelsLoading: ['Loading models…', '모델 불러오는 중…'],
  modelsNone: ['No models', '모델 없음'],
  key: ['Access key', '액세스 키'],
  keyNone: ['No key', '키 없음'],
  keyFree: ['Free', '무료'],
  keyPaid: ['Paid', '유료'],
  keyOther: ['Other key…', '다른 키…'],
  keyTitle: ['Enter your access key', '액세스 키를 입력하세요'],
  keyText: [
    'Every request to this server carries a key. It is kept in this browser and sent to this server only.',
    '이 서버에 보내는 모든 요청에는 키가 필요합니다. 키는 이 브라우저에 저장되며 이 서버에만 전송됩니다.',
  ],
  keyHint: ['Starting the server prints an address that already contains its keys.', '서버를 시작하면 키가 포함된 주소가 출력됩니다.'],
  keyField: ['Access key', '액세스 키'],
  keyTextOpen: [
    'This server also answers without a key; with one it may allow more. A key is kept in this browser and sent to this server only.',
    '이 서버는 키 없이도 답하지만, 키가 있으면 더 많이 쓸 수 있습니다. 키는 이 브라우저에 저장되며 이 서버에만 전송됩니다.',
  ],
  keyNotTaken: ['The server does not accept this key: {why}', '서버가 이 키를 받아들이지 않습니다: {why}'],
  keyRefused: ['The key used so far is no longer accepted, and was removed here: {why}', '지금까지 쓰던 키를 더 이상 쓸 수 없어 이 브라우저에서 지웠습니다: {why}'],
  keyWrong: ['A key has 4 to 512 letters, digits or signs, without spaces.', '키는 공백 없이 4~512자의 영문자, 숫자, 기호여야 합니다.'],
  keyUse: ['Use this key', '이 키 사용'],
  keyShow: ['Show the key', '키 표시'],
  heroTitle: ['Ask, and let it flow.', '물어보세요. 답이 흐릅니다.'],
  heroText: [
    'Answers stream straight from the models on this server. Your conversations stay in this browser.',
    '이 서버의 모델이 답을 바로바로 흘려보냅니다. 대화는 이 브라우저에만 남습니다.',
  ],
  suggestions: ['Questions to start with', '시작하기 좋은 질문'],
  messages: ['Conversation', '대화'],
  you: ['You', '나'],
  composer: ['Message', '메시지'],
  placeholder: ['Ask anything…', '무엇이든 물어보세요…'],
  send: ['Send', '보내기'],
  stop: ['Stop', '중지'],
  hint: ['Enter sends · Shift + Enter starts a new line · Esc stops', 'Enter 보내기 · Shift + Enter 줄바꿈 · Esc 중지'],
  caution: ['Models make mistakes. Check what matters.', '모델은 틀릴 수 있습니다. 중요한 내용은 확인하세요.'],
  latest: ['Jump to the latest', '최신 내용으로 이동'],
  copy: ['Copy', '복사'],
  copyCode: ['Copy code', '코드 복사'],
  copied: ['Copied', '복사됨'],
  copyFailed: ['Could not copy', '복사하지 못함'],
  edit: ['Edit', '수정'],
  editField: ['Edit your message', '메시지 수정'],
  editSend: ['Send again', '다시 보내기'],
  regenerate: ['Regenerate', '다시 생성'],
  search: ['Search chats', '대화 검색'],
  found: ['Found: {n}', '검색 결과 {n}개'],
  foundNone: ['Nothing was found.', '검색 결과가 없습니다.'],
  moreChats: ['Show more ({n})', '더 보기 ({n})'],
  export: ['Export', '내보내기'],
  exportOf: ['Export “{title}”', '“{title}” 내보내기'],
  exportAll: ['Export all chats', '모든 대화 내보내기'],
  import: ['Import chats', '대화 가져오기'],
  imported: ['Imported: {n}.', '대화 {n}개를 가져왔습니다.'],
  importedPart: ['Imported: {n}. Left out: {left}, for which there is no room, or which are damaged.', '대화 {n}개를 가져왔습니다. 공간이 부족하거나 손상된 {left}개는 제외했습니다.'],
  exportPart: [
    'The file lacks messages of some chats, which this browser keeps but does not give at the moment: {n}.',
    '이 브라우저에 보관된 메시지를 지금 읽을 수 없어, 대화 {n}개의 일부가 파일에 빠져 있습니다.',
  ],
  unread: [
    'Older messages of this chat are kept in this browser, which does not give them at the moment. Reload the page to try again.',
    '이 대화의 이전 메시지는 이 브라우저에 있지만 지금은 읽을 수 없습니다. 페이지를 새로 고쳐 다시 시도하세요.',
  ],
  importWrong: ['This file holds no exported chats.', '내보낸 대화 파일이 아닙니다.'],
  importLarge: ['This file is too large.', '파일이 너무 큽니다.'],
  importShort: ['Import', '가져오기'],
  server: ['Server', '서버'],
  serverHistory: ['Chats on the server', '서버의 대화'],
  serverHistoryText: ['Chats kept on the server with the key in use. Opening one brings it into this browser.', '사용 중인 키로 서버에 보관된 대화입니다. 열면 이 브라우저로 가져옵니다.'],
  serverNone: ['No chats are kept with this key.', '이 키로 보관된 대화가 없습니다.'],
  serverLoading: ['Loading…', '불러오는 중…'],
  serverFailed: ['The server’s history: {why}', '서버 대화 보관: {why}'],
  serverKey: ['it needs a key that may list chats.', '대화 목록을 볼 수 있는 키가 필요합니다.'],
  serverFull: ['there is no room for more with this key.', '이 키로 보관할 공간이 더 없습니다.'],
  serverLocked: ['the chat is being changed by another client.', '다른 클라이언트가 이 대화를 변경하고 있습니다.'],
  serverAway: ['the server cannot be reached.', '서버에 연결할 수 없습니다.'],
  serverGone: ['this chat is no longer there.', '이 대화는 더 이상 없습니다.'],
  removeKept: ['“{title}” will be removed from this browser and from the server. This cannot be undone.', '“{title}” 대화가 이 브라우저와 서버에서 지워집니다. 되돌릴 수 없습니다.'],
  close: ['Close', '닫기'],
  keyManage: ['Manage keys…', '키 관리…'],
  keysTitle: ['Access keys', '액세스 키'],
  keysText: ['The keys kept in this browser. The marked one is used.', '이 브라우저에 저장된 키입니다. 표시된 키를 사용합니다.'],
  keyUseOf: ['Use “{name}”', '“{name}” 사용'],
  keyName: ['Name of “{name}”', '“{name}”의 이름'],
  keyNameWrong: ['A name has 1 to 32 letters, digits, - or _, and is there once.', '이름은 1~32자의 영문자, 숫자, -, _이며 겹칠 수 없습니다.'],
  keyRemoveOf: ['Remove “{name}”', '“{name}” 제거'],
  keysAdd: ['Add a key', '키 추가'],
  loading: ['Loading {n} %', '불러오는 중 {n}%'],
  versions: ['Versions', '버전'],
  versionBefore: ['Previous version', '이전 버전'],
  versionNext: ['Next version', '다음 버전'],
  continue: ['Continue', '계속'],
  file: ['File', '파일'],
  attach: ['Attach text files', '텍스트 파일 첨부'],
  fileRemove: ['Remove {name}', '{name} 제거'],
  fileMany: ['At most {n} files go with a message.', '메시지 하나에 파일은 {n}개까지 첨부할 수 있습니다.'],
  fileLarge: ['{name} is too large: a message takes {n} KiB of it.', '{name} 파일이 너무 큽니다. 최대 {n}KiB입니다.'],
  fileNoText: ['{name} is not a text file in UTF-8.', '{name} 파일은 UTF-8 텍스트가 아닙니다.'],
  options: ['Options of this chat', '이 대화의 설정'],
  optionsText: ['Only what is filled in is sent with this chat’s requests.', '입력한 값만 이 대화의 요청에 포함됩니다.'],
  system: ['System prompt', '시스템 프롬프트'],
  temperature: ['Temperature', '온도'],
  top_p: ['Top P', '상위 P'],
  max_tokens: ['Max tokens', '최대 토큰'],
  seed: ['Seed', '시드'],
  stopStrings: ['Stop strings', '중지 문자열'],
  stopHint: ['Stop strings, one a line', '중지 문자열 (한 줄에 하나)'],
  schema: ['JSON Schema of the answer', '답변의 JSON 스키마'],
  schemaChip: ['JSON answer', 'JSON 답변'],
  serverChip: ['Kept on the server', '서버에 보관'],
  optionsDefaults: ['Use for new chats, too', '새 대화에도 사용'],
  optionsReset: ['Clear', '지우기'],
  optionsSave: ['Save', '저장'],
  wrong_temperature: ['The temperature is a number from 0 to 2.', '온도는 0에서 2 사이의 숫자입니다.'],
  wrong_top_p: ['Top P is a number above 0, at most 1.', '상위 P는 0보다 크고 1 이하인 숫자입니다.'],
  wrong_max_tokens: ['Max tokens is a whole number from 1 to 1,000,000.', '최대 토큰은 1에서 1,000,000 사이의 정수입니다.'],
  wrong_seed: ['The seed is a whole number.', '시드는 정수입니다.'],
  wrong_stop: ['At most {n} stop strings of {chars} characters.', '중지 문자열은 {chars}자 이하로 {n}개까지입니다.'],
  wrong_schema: ['The schema is no JSON object.', '스키마가 JSON 객체가 아닙니다.'],
  code: ['Code', '코드'],
  table: ['Table', '표'],
  checked: ['done', '완료'],
  unchecked: ['to do', '할 일'],
  thinking: ['Thinking', '생각 과정'],
  calls: ['Tool calls', '도구 호출'],
  calculatorOn: ['Calculator: on', '계산기: 켜짐'],
  calculatorOff: ['Calculator: off', '계산기: 꺼짐'],
  connecting: ['Opening the gate…', '수문을 여는 중…'],
  reconnecting: ['Connection lost. Reconnecting…', '연결이 끊겨 다시 연결하는 중…'],
  waiting: ['The engine is starting. Retrying in {n} s', '엔진이 시작되는 중입니다. {n}초 후 다시 시도합니다'],
  ttft: ['{n} ms to first token', '첫 토큰까지 {n}ms'],
  tps: ['{n} tokens/s', '초당 {n}토큰'],
  tokens: ['{in} in · {out} out', '입력 {in} · 출력 {out}'],
  tokensOut: ['{out} tokens', '{out}토큰'],
  endStopped: ['Stopped', '중지됨'],
  endLength: ['Cut off at the length limit', '길이 제한에서 잘렸습니다'],
  endFilter: ['Held back by the content filter', '콘텐츠 필터로 보류되었습니다'],
  endLost: ['Connection lost. What arrived is kept.', '연결이 끊겼습니다. 받은 내용은 보관됩니다.'],
  endGone: ['The rest of this answer was lost: the server no longer has it.', '이 답변의 나머지는 서버에 남아 있지 않아 사라졌습니다.'],
  tryAgain: ['Try again', '다시 시도'],
  enterKey: ['Enter a key', '키 입력'],
  e401: ['This key is not accepted', '이 키는 사용할 수 없습니다'],
  e401none: ['A key is needed', '키가 필요합니다'],
  e403: ['This key may not do that', '이 키로는 할 수 없는 작업입니다'],
  e404: ['This model is not available', '이 모델은 사용할 수 없습니다'],
  e400: ['The request was not accepted', '요청이 받아들여지지 않았습니다'],
  e413: ['This is too long', '너무 깁니다'],
  unsent: ['Not sent', '보내지 않음'],
  unsentText: [
    'The message was not sent, and is left out of what follows. Edit it and send it again, go on without it, or start a new chat.',
    '이 메시지는 전송되지 않았으며 이후 대화에서 제외됩니다. 수정해서 다시 보내거나, 그대로 계속하거나, 새 대화를 시작하세요.',
  ],
  elsewhere: ['Being answered in another tab…', '다른 탭에서 답변하는 중…'],
  fetching: ['Reading the chat…', '대화를 읽는 중…'],
  removedElsewhere: ['This conversation was deleted in another tab.', '이 대화는 다른 탭에서 삭제되었습니다.'],
  e429: ['The limit of this key is reached', '이 키의 한도에 도달했습니다'],
  e429wait: ['You may try again in {n}.', '{n} 후에 다시 시도할 수 있습니다.'],
  e429now: ['You may try again now.', '이제 다시 시도할 수 있습니다.'],
  e503: ['The engine is not ready', '엔진이 준비되지 않았습니다'],
  e5xx: ['The server met an error', '서버에 오류가 발생했습니다'],
  eNetwork: ['The server cannot be reached', '서버에 연결할 수 없습니다'],
  eNetworkText: ['Check that it is running, then try again.', '서버가 실행 중인지 확인한 뒤 다시 시도하세요.'],
  eStream: ['The answer broke off', '답변이 중간에 끊겼습니다'],
  left: ['Left: {parts}', '남음: {parts}'],
  leftRequests: ['{n} requests', '요청 {n}회'],
  leftTokens: ['{n} tokens', '{n}토큰'],
  seconds: ['{n} s', '{n}초'],
  minutes: ['{n} min', '{n}분'],
  hours: ['{n} h', '{n}시간'],
  notSaved: [
    'This browser’s storage is full or off: this conversation lasts until the page is closed.',
    '브라우저 저장 공간이 가득 찼거나 꺼져 있어, 이 대화는 페이지를 닫으면 사라집니다.',
  ],
  evicted: ['Older chats were removed from this browser to make room: {n}. Export what you want to keep.', '공간을 확보하려고 이 브라우저에서 오래된 대화 {n}개를 지웠습니다. 보관할 대화는 내보내세요.'],
  liveStarted: ['Sluice is answering.', 'Sluice가 답변하는 중입니다.'],
  liveDone: ['Answer: {text}', '답변: {text}'],
  liveStopped: ['Stopped.', '중지했습니다.'],
  ask1: ['Ask a fact', '사실 묻기'],
  ask1q: ['What is the capital of France?', '프랑스의 수도는 어디인가요?'],
  ask2: ['Have it explained', '색깔 묻기'],
  ask2q: ['Explain what gravity is.', '하늘은 무슨 색이에요?'],
  ask3: ['Hear a story', '이야기 듣기'],
  ask3q: ['Tell me a long story about a river.', '이야기 하나 해 주세요.'],
  ask4: ['Meet Sluice', 'Sluice 알아보기'],
  ask4q: ['How does streaming work in Sluice?', 'What is Sluice?'],
};

let current = 'en';

/** The language to begin with: the stored choice, else the first of the browser's that the page speaks. */
export function pickLanguage(stored, languages) {
  if (LANGUAGES.includes(stored)) return stored;
  for (const tag of languages ?? []) {
    const base = String(tag).toLowerCase().split('-')[0];
    if (LANGUAGES.includes(base)) return base;
  }
  return 'en';
}

export function setLanguage(language) { current = language; }
export const language = () => current;

/** The words for `name` with {placeholders} filled in. */
export function t(name, values = {}) {
  const text = words[name]?.[LANGUAGES.indexOf(current)] ?? name;
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
