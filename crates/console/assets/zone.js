// Proposes the timezone of the browser in a field that is empty.
for (const field of document.querySelectorAll('[data-zone]')) {
  field.value ||= Intl.DateTimeFormat().resolvedOptions().timeZone ?? '';
}
