// model.js: a simulated language model. It yields the tokens of a text, as fast as a real one.

const TEXT = `A lighthouse looks like a lamp on a tower, but the lamp is the least of it. The first \
keepers burned wood, then coal, then oil, and ships still ran aground within sight of the fire: \
most of the light went up into the sky, where no sailor needed it. ☁️

In 1819 the engineer Augustin Fresnel was asked to improve the French lighthouses. A glass lens \
large enough for the task would have been as thick as a barrel, too heavy to lift and too dark to \
see through. Fresnel noticed that a lens bends light only at its surface. So he kept the surface \
and left out the glass behind it: rings of prisms, each with the slope that the thick lens would \
have had at that place.

The first such lens was lit in the tower of Cordouan, off the mouth of the Gironde, in 1823. Its \
beam was seen from more than thirty kilometres away. The keepers wrote that the night had become \
“plus courte”, shorter.

The second idea was a clock. A steady light on a coast of many lights says little: is this \
Eddystone, or a farmhouse? Fresnel let the lens turn, so that each tower flashed in a rhythm of its \
own. A captain counted the seconds between two flashes, looked them up in a table, and knew the \
name of the rock. Light had become a message. 💡

What is left of it today? Satellites name the place of a ship to a metre, and most towers are \
empty. But the lens is everywhere: in the lamp of a car, in a theatre, in the flat magnifier of a \
reading room, in the camera of a telephone. And sailors still look for the light. When every \
screen on the bridge agrees, the flash on the horizon is the second opinion: Grüße vom Festland, \
αντίο, 了解, 🌊.
`;

/**
 * @param {string} question
 * @param {AbortSignal} signal ends the answer after the current token
 * @param {number} [perSecond] tokens
 * @returns {AsyncGenerator<string, void>}
 */
export async function* answer(question, signal, perSecond = 60) {
  const tokens = `“${question}”\n\n${TEXT}`.match(/\s*\S{1,6}/gu) ?? [];
  for (const token of tokens) {
    // Real models pause now and then.
    const pauseMs = (1000 / perSecond) * (Math.random() < 0.02 ? 15 : Math.random() * 1.4);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    if (signal.aborted) return;
    yield token;
  }
}
