// Adds a button to each text that is there to be copied.
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
