// One run of the overload story: orders of one unit for one item, evenly over all replicas, either
// from so many clients of whom each waits for its answer (closed: CLIENTS), or so many a second
// whatever becomes of them (open: RATE, VUS). It is started by load/overload-k6. Rates are what was
// answered between the warm-up and the end; latencies are those of all requests that were sent in
// that time, however long they took.
import { sleep } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import { problemOf } from './problem.js';

const baseUrls = __ENV.BASE_URLS.split(',');
const headers = Object.assign(JSON.parse(__ENV.HEADERS), { 'Content-Type': 'application/json' });
const warmUpMs = Number(__ENV.WARM_UP_S) * 1000;
const endMs = warmUpMs + Number(__ENV.SECONDS) * 1000;

const closed = { executor: 'constant-vus', vus: Number(__ENV.CLIENTS) };
const open = {
  executor: 'constant-arrival-rate',
  rate: Number(__ENV.RATE),
  timeUnit: '1s',
  preAllocatedVUs: Number(__ENV.VUS),
  maxVUs: Number(__ENV.VUS),
};

export const options = {
  scenarios: {
    orders: Object.assign(__ENV.CLIENTS ? closed : open, {
      duration: `${endMs}ms`,
      // Whoever was sent before the end is heard: the ledger will count it.
      gracefulStop: `${__ENV.ANSWER_TIMEOUT_S}s`,
    }),
  },
  maxRedirects: 0,
  // Labels that nobody reads cost the tool a third of its time.
  systemTags: [],
  summaryTrendStats: ['p(50)', 'p(99)'],
};

const REFUSALS = ['overloaded', 'lock-timeout', 'lock-busy', 'sold-out'];
const counter = (name) => new Counter(name.replace('-', '_'));

const accepted = counter('accepted');
const refused = Object.fromEntries(REFUSALS.map((why) => [why, counter(why)]));
const sent = counter('in_time_sent');
const kinds = {
  sold: { answered: counter('in_time_sold'), took: new Trend('sold_ms', true) },
  refused: { answered: counter('in_time_refused'), took: new Trend('refused_ms', true) },
};

export default function order() {
  // Each client keeps to one replica, so that it needs one connection.
  const baseUrl = baseUrls[exec.vu.idInTest % baseUrls.length];
  const key = `${__ENV.RUN}-${exec.scenario.iterationInTest}`;
  const began = Date.now() - exec.scenario.startTime;
  const answer = http.post(`${baseUrl}/api/orders`, __ENV.BODY, {
    headers: Object.assign({ 'Idempotency-Key': key }, headers),
    timeout: `${__ENV.ANSWER_TIMEOUT_S}s`,
  });
  const ended = Date.now() - exec.scenario.startTime;
  const kind = kindOf(answer);
  if (began >= warmUpMs && began < endMs) {
    sent.add(1);
    if (kind) kinds[kind].took.add(whole(answer.timings));
  }
  if (kind && ended >= warmUpMs && ended < endMs) kinds[kind].answered.add(1);
  // In a closed loop a client that is told to come again later does so.
  if (__ENV.CLIENTS && answer.status === 503) sleep(1);
}

// Counts it for the ledger, and says whether it was sold or refused; nothing when it is neither.
function kindOf(answer) {
  if (answer.status === 201) {
    accepted.add(1);
    return 'sold';
  }
  const problem = problemOf(answer);
  if (problem === 'overloaded' && !answer.headers['Retry-After']) {
    console.error('overloaded, and not told when to come again');
  } else if (refused[problem]) {
    refused[problem].add(1);
    return 'refused';
  } else {
    console.error(`status ${answer.status} ${problem || answer.error || ''}`.trim());
  }
  return '';
}

// With what it took to get a connection (`blocked` contains the handshakes): whoever waits for that
// waits for the shop too.
function whole(timings) {
  return timings.blocked + timings.duration;
}

export function handleSummary(data) {
  const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  const took = (name) => {
    const values = data.metrics[name] ? data.metrics[name].values : {};
    return { p50_ms: values['p(50)'], p99_ms: values['p(99)'] };
  };
  const reasons = REFUSALS.map((why) => [why.replace('-', ' '), count(why.replace('-', '_'))]);
  return {
    [__ENV.SUMMARY]: JSON.stringify({
      accepted: count('accepted'),
      refused: Object.fromEntries(reasons),
      dropped: count('dropped_iterations'),
      in_time: {
        sent: count('in_time_sent'),
        sold: count('in_time_sold'),
        refused: count('in_time_refused'),
      },
      sold: took('sold_ms'),
      refusals: took('refused_ms'),
    }),
  };
}
