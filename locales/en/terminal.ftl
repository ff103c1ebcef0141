# A lesson in a terminal.
terminal-run-one = Run one with: holdfast lesson NAME
terminal-page = The run with all details: { $page }
terminal-sample = { $strategy }: sold { $sold }, stock { $stock }, oversold { $oversold }, waiting { $waiting }
terminal-contradicts = contradicts the claim
terminal-shown = SHOWN: { $verdict }
terminal-not-shown = NOT SHOWN: { $verdict }
terminal-failed = FAILED: { $verdict }
terminal-next = Next: holdfast lesson { $name }
terminal-opening = opening
terminal-sound = sound
terminal-not-sound = NOT SOUND
