<?php
// The protocol of `holdfast judge` (docs/JUDGE.md) for locks in PHP.
//
// An adapter calls `serve` with the answer to `init` and a function of the request `init` that
// returns an object with:
//   acquire(string $key, int $waitMs)   a lease, or null after $waitMs
//   release($lease)                     false if the lock was lost
// PHP runs one thing at a time, so each lease has a process of its own, as behind a web server. Its
// object is opened again after an exception, which is reported as "error": a backend that is away
// is not a lock that is busy.

function send($stream, array $line): void
{
    fwrite($stream, json_encode($line, JSON_UNESCAPED_SLASHES) . "\n");
}

/** Serves one lease at a time until the end of its input. */
function serveLeases($stream, callable $open, array $init): void
{
    $locks = $lease = null;
    while (($line = fgets($stream)) !== false) {
        $request = json_decode($line, true);
        $answer = ['id' => $request['id']];
        try {
            $locks ??= $open($init);
            switch ($request['op']) {
                case 'acquire':
                    $wait = $request['wait_ms'];
                    $lease = $locks->acquire($request['key'], $wait);
                    $answer += $lease !== null
                        ? ['ok' => true, 'lease' => getmypid() . '-' . $request['id']]
                        : ['ok' => false, 'reason' => $wait > 0 ? 'timeout' : 'busy'];
                    break;
                case 'release':
                    $answer += $locks->release($lease)
                        ? ['ok' => true]
                        : ['ok' => false, 'reason' => 'lost'];
            }
        } catch (Throwable $error) {
            while ($error->getPrevious() !== null) {
                $error = $error->getPrevious();
            }
            $detail = get_class($error) . ': ' . $error->getMessage();
            $answer += ['ok' => false, 'reason' => 'error', 'detail' => $detail];
            $locks = null;
        }
        send($stream, $answer);
    }
}

/** Forks a process for leases; returns the stream to it. */
function startProcess(callable $open, array $init)
{
    [$mine, $its] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    if (pcntl_fork() === 0) {
        fclose($mine);
        fclose(STDIN);
        serveLeases($its, $open, $init);
        exit(0);
    }
    fclose($its);
    return $mine;
}

/** Serves the judge's requests until the end of the input. */
function serve(array $about, callable $open): void
{
    pcntl_signal(SIGCHLD, SIG_IGN);
    $processes = $idle = $holding = []; // streams by number; free numbers; numbers by lease
    $init = [];
    while (true) {
        $readable = [-1 => STDIN] + $processes;
        $write = $except = null;
        if (stream_select($readable, $write, $except, null) === false) {
            continue;
        }
        foreach ($readable as $number => $stream) {
            $line = fgets($stream);
            if ($line === false) {
                exit($number === -1 ? 0 : 1);
            }
            $message = json_decode($line, true);
            if ($number !== -1) { // the answer of a process
                if (isset($message['lease'])) {
                    $holding[$message['lease']] = $number;
                } elseif (!in_array($number, $holding, true)) {
                    $idle[] = $number;
                }
                send(STDOUT, $message);
            } elseif ($message['op'] === 'init') {
                $init = $message;
                send(STDOUT, ['id' => $message['id'], 'ok' => true] + $about);
            } elseif ($message['op'] === 'acquire') {
                $number = array_pop($idle) ?? count($processes);
                $processes[$number] ??= startProcess($open, $init);
                send($processes[$number], $message);
            } else {
                $number = $holding[$message['lease']];
                unset($holding[$message['lease']]);
                send($processes[$number], $message);
            }
        }
    }
}
