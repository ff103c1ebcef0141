// What the shop's answers have in common, for the load scripts.

// The NAME of a refusal's `type`, "/problems/NAME".
export function problemOf(answer) {
  try {
    return String(answer.json('type')).split('/').pop();
  } catch (_) {
    return '';
  }
}
