// Everything works without this script. It copies, moves to the search, names dates in the browser's language, and
// closes menus.

// A button on each text that is there to be copied.
for (const text of document.querySelectorAll('.copy')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'minor';
  button.textContent = 'Copy';
  button.setAttribute('aria-live', 'polite');
  const content = text.textContent;
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(content);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(text.querySelector('code'));
      button.textContent = 'Selected';
    }
  });
  text.append(button);
}

// The browser's timezone, in a field that is empty, or below one that has another.
for (const field of document.querySelectorAll('[data-zone]')) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? '';
  field.value ||= zone;
  if (zone && zone !== field.value) document.getElementById(field.dataset.zone)?.append(` This browser says ${zone}.`);
}

// Days and exact times in the browser's language, if that is not English, and in the user's timezone. The words around
// them stay.
const { timezone } = document.body.dataset;
if (timezone && !/^en\b/.test(navigator.language)) {
  for (const time of document.querySelectorAll('time[datetime]')) {
    const format = form =>
      new Intl.DateTimeFormat(navigator.language, { timeZone: timezone, ...form }).format(new Date(time.dateTime));
    time.title = format({ dateStyle: 'long', timeStyle: 'long' });
    if (/ \d{4}$/.test(time.textContent)) time.textContent = format({ dateStyle: 'medium' });
  }
}

// Menus and filters lie above the page, so a click beside them closes them.
const CLOSING = 'details[name="menu"], details[name="filter"]';

// `/` is the search. Escape closes the menu or the filter that is open.
document.addEventListener('keydown', event => {
  const isTyping = event.target.closest('input, select, textarea');
  if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector('input[type="search"]');
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
  if (event.key === 'Escape') {
    const open = document.querySelector(`:is(${CLOSING})[open]`);
    if (open) {
      open.open = false;
      open.querySelector('summary').focus();
    }
  }
});
document.addEventListener('click', event => {
  for (const open of document.querySelectorAll(`:is(${CLOSING})[open]`)) {
    if (!open.contains(event.target)) open.open = false;
  }
});
