// Sends orders of one unit of one item to all replicas, for run_k6 in common.py. SCENARIO is k6's
// definition of the load. Counts of `in_time` are the responses between the warm-up and the end;
// their latencies are those of the requests sent in that time, however long they took.
import { sleep } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';

const baseUrls = __ENV.BASE_URLS.split(',');
const headers = Object.assign(JSON.parse(__ENV.HEADERS), { 'Content-Type': 'application/json' });
const warmUpMs = Number(__ENV.WARM_UP_S) * 1000;
const endMs = warmUpMs + Number(__ENV.SECONDS) * 1000;
const pauseS = Number(__ENV.PAUSE_AFTER_503_S);

export const options = {
  scenarios: { orders: JSON.parse(__ENV.SCENARIO) },
  maxRedirects: 0,
  // Unused labels cost k6 a third of its time.
  systemTags: [],
  summaryTrendStats: ['p(50)', 'p(99)'],
};

const REASONS = ['overloaded', 'lock-timeout', 'lock-busy', 'sold-out'];
const counter = (name) => new Counter(name.replace('-', '_'));

const accepted = counter('accepted');
const rejected = Object.fromEntries(REASONS.map((reason) => [reason, counter(reason)]));
const sent = counter('in_time_sent');
const inTime = {
  accepted: { count: counter('in_time_accepted'), latency: new Trend('accepted_ms', true) },
  rejected: { count: counter('in_time_rejected'), latency: new Trend('rejected_ms', true) },
};

export default function order() {
  // Each client uses one replica, so that it needs one connection.
  const baseUrl = baseUrls[exec.vu.idInTest % baseUrls.length];
  const key = `${__ENV.RUN}-${exec.scenario.iterationInTest}`;
  const began = Date.now() - exec.scenario.startTime;
  const response = http.post(`${baseUrl}/api/orders`, __ENV.BODY, {
    headers: Object.assign({ 'Idempotency-Key': key }, headers),
    timeout: `${__ENV.REQUEST_TIMEOUT_S}s`,
  });
  const ended = Date.now() - exec.scenario.startTime;
  const kind = classify(response);
  if (began >= warmUpMs && began < endMs) {
    sent.add(1);
    // `blocked` is the time to get a connection.
    if (kind) inTime[kind].latency.add(response.timings.blocked + response.timings.duration);
  }
  if (kind && ended >= warmUpMs && ended < endMs) inTime[kind].count.add(1);
  if (pauseS && response.status === 503) sleep(pauseS);
}

// Counts a response; returns its kind, or nothing if it is unexpected, which is printed.
function classify(response) {
  if (response.status === 201) {
    accepted.add(1);
    return 'accepted';
  }
  const problem = problemType(response);
  if (problem === 'overloaded' && !response.headers['Retry-After']) {
    console.error('overloaded without Retry-After');
  } else if (rejected[problem]) {
    rejected[problem].add(1);
    return 'rejected';
  } else {
    console.error(`status ${response.status} ${problem || response.error || ''}`.trim());
  }
  return '';
}

// The NAME of a problem's `type`, "/problems/NAME".
function problemType(response) {
  try {
    return String(response.json('type')).split('/').pop();
  } catch (_) {
    return '';
  }
}

export function handleSummary(data) {
  const values = (name) => (data.metrics[name] ? data.metrics[name].values : {});
  const count = (name) => values(name).count || 0;
  const counts = REASONS.map((reason) => [reason.replace('-', ' '), count(reason.replace('-', '_'))]);
  return {
    [__ENV.SUMMARY]: JSON.stringify({
      seconds: data.state.testRunDurationMs / 1000,
      accepted: count('accepted'),
      rejected: Object.fromEntries(counts.filter(([, number]) => number)),
      dropped: count('dropped_iterations'),
      p99_ms: values('http_req_duration')['p(99)'] || 0,
      in_time: {
        sent: count('in_time_sent'),
        accepted: count('in_time_accepted'),
        rejected: count('in_time_rejected'),
      },
      accepted_ms: values('accepted_ms'),
      rejected_ms: values('rejected_ms'),
    }),
  };
}
