// Sends the calls of the reference page. The key is in its input and nowhere else.

const key = document.getElementById('key-input');
// The console leads here with a new key in the fragment, which a browser sends to nobody. It goes on to the input.
const given = /^#key=(bb_[0-9A-Za-z]+)$/.exec(location.hash);
if (given) {
  key.value = given[1];
  history.replaceState(null, '', location.pathname);
}
const SHOWN_HEADERS = [
  'X-Cache', 'Age', 'X-Service-Truncated', 'Deprecation', 'Sunset', 'X-RateLimit-Limit', 'X-RateLimit-Remaining',
  'X-RateLimit-Reset', 'Retry-After', 'X-Request-Id',
];

// Paths are relative to the page, since a proxy may have added a prefix.
function urlOf(form, valueOf) {
  const fields = [...form.querySelectorAll('input')].map(input => [input.name, valueOf(input)]);
  const isInPath = name => form.dataset.path.includes(`{${name}}`);
  const given = fields.filter(([name, value]) => value !== '' && !isInPath(name));
  const query = new URLSearchParams(given).toString();
  const put = (path, [name, value]) => path.replace(`{${name}}`, encodeURIComponent(value));
  const path = fields.reduce(put, form.dataset.path);
  return new URL(`.${path}${query && '?'}${query}`, location.href).href;
}

// Indents JSON as text: a number that is parsed loses digits.
function indent(json) {
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  return json.trim().replace(/"(?:\\.|[^"\\])*"|\{\s*\}|\[\s*\]|[{}[\],:]|\s+/g, token => {
    if (token === '{' || token === '[') {
      depth += 1;
      return token + line();
    }
    if (token === '}' || token === ']') {
      depth -= 1;
      return line() + token;
    }
    if (token === ',') return token + line();
    if (token === ':') return ': ';
    return token.trim();
  });
}

// Offers the ids of a list to the inputs that ask for them. Those that a call cannot do without and that are empty get
// the first one.
function offerIds(path, body) {
  const offered = document.getElementById(`ids-${path}`);
  if (!offered) return;
  const { data } = JSON.parse(body);
  offered.replaceChildren(...data.map(row => new Option(row.name ?? row.institutionName, row.id)));
  for (const input of document.querySelectorAll(`input[required][list="${offered.id}"]`)) {
    const kinds = /holdings|trades/.test(input.form.dataset.path) ? ['brokerage'] : ['banking', 'transaction'];
    const row = data.find(row => kinds.includes(row.category ?? row.type));
    if (!row || input.value) continue;
    input.value = row.id;
    input.dispatchEvent(new Event('input', { bubbles: true }));
  }
}

function show(form, response, body) {
  const headers = SHOWN_HEADERS.filter(name => response.headers.has(name)).map(name => {
    const row = document.createElement('div');
    const [term, value] = [document.createElement('dt'), document.createElement('dd')];
    term.textContent = name;
    value.textContent = response.headers.get(name);
    row.append(term, value);
    return row;
  });
  const isJson = response.headers.get('content-type') === 'application/json';
  form.querySelector('.result dl').replaceChildren(...headers);
  form.querySelector('.result pre').textContent = isJson ? indent(body) : body;
  form.querySelector('.result').hidden = false;
}

async function send(form) {
  const status = form.querySelector('[role=status]');
  const entered = key.value.trim();
  const needsKey = 'needsKey' in form.dataset;
  // The response to an earlier click must not replace that of a later one.
  form.sending?.abort();
  form.sending = new AbortController();
  const { signal } = form.sending;
  status.textContent = 'Sending…';
  try {
    const headers = needsKey && entered ? { Authorization: `Bearer ${entered}` } : {};
    const url = urlOf(form, input => input.value.trim());
    const response = await fetch(url, { headers, signal, cache: 'no-store', credentials: 'omit' });
    const body = await response.text();
    show(form, response, body);
    if (response.ok) offerIds(form.dataset.path, body);
    const remark = needsKey && !entered ? ': enter your API key above' : '';
    status.textContent = `${response.status} ${response.statusText}${remark}`;
  } catch (error) {
    if (signal.aborted) return;
    form.querySelector('.result').hidden = true;
    status.textContent = `No response: ${error.message}`;
  }
}

for (const form of document.forms) {
  form.addEventListener('submit', event => {
    event.preventDefault();
    send(form);
  });
  form.addEventListener('input', () => {
    const url = urlOf(form, input => input.value.trim() || (input.dataset.example ?? ''));
    form.querySelector('.url').textContent = url;
  });
}

// Copies a request, or selects it. Browsers offer the clipboard to pages of a secure origin only, and may deny it.
for (const text of document.querySelectorAll('pre.copy')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'copy-button';
  button.textContent = 'Copy';
  button.setAttribute('aria-live', 'polite');
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(text.querySelector('code'));
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 2000);
  });
  text.after(button);
}

// Shows the operations and events that contain every word.
const search = document.getElementById('search');
search.parentElement.hidden = false;
search.addEventListener('input', () => {
  const words = search.value.toLowerCase().split(/\s+/);
  let found = 0;
  for (const card of document.querySelectorAll('.card')) {
    const text = card.textContent.toLowerCase();
    card.hidden = !words.every(word => text.includes(word));
    found += card.hidden ? 0 : 1;
    for (const link of document.querySelectorAll(`nav a[href="#${card.id}"]`)) link.parentElement.hidden = card.hidden;
  }
  search.parentElement.querySelector('[role=status]').textContent = search.value && `${found} found`;
});

// With a key of the console, the ids are there at once.
async function readIds(path) {
  const headers = { Authorization: `Bearer ${given[1]}` };
  const response = await fetch(new URL(`.${path}`, location.href), { headers, cache: 'no-store', credentials: 'omit' });
  if (response.ok) offerIds(path, await response.text());
}
if (given) Promise.all(['/v1/connections', '/v1/accounts'].map(readIds)).catch(() => {});

const menu = document.querySelector('nav details');
menu.addEventListener('click', event => {
  if (event.target.closest('a')) menu.open = false;
});

// A browser may keep the page, with its inputs, for the way back.
addEventListener('pagehide', () => {
  key.value = '';
  for (const result of document.querySelectorAll('.result')) {
    result.hidden = true;
    result.querySelector('pre').textContent = '';
  }
  for (const offered of document.querySelectorAll('datalist')) offered.replaceChildren();
});
