// search-box.js: makes VitePress's search box a dialog with a list of links, for screen readers.
//
// VitePress 1.6 calls the box a button that contains its own field and links, and each hit an option
// that contains a link whose name is not its text.

const OF_BOX = ['aria-expanded', 'aria-haspopup', 'aria-owns'];
const OF_HITS = ['aria-label', 'aria-selected', 'role'];

/** Watches for the box, which is added to the body whenever it opens. */
export function mendSearchBox() {
  const hits = new MutationObserver(mendHits);
  new MutationObserver(() => {
    const box = document.querySelector('.VPLocalSearchBox[role="button"]');
    if (box === null) return;
    box.setAttribute('role', 'dialog');
    box.setAttribute('aria-modal', 'true');
    for (const name of OF_BOX) box.removeAttribute(name);
    for (const key of box.querySelectorAll('kbd[aria-label]')) key.setAttribute('role', 'img');
    hits.disconnect();
    hits.observe(box, { subtree: true, childList: true, attributeFilter: OF_HITS });
    mendHits();
  }).observe(document.body, { childList: true });
}

function mendHits() {
  for (const part of document.querySelectorAll(
    '.VPLocalSearchBox :is([role="listbox"], [role="option"], [aria-selected], .result[aria-label])',
  ))
    for (const name of OF_HITS) part.removeAttribute(name);
}
