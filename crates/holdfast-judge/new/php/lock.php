<?php
// The adapter of a lock for `holdfast judge`: put your own lock in place of this one.
//
//   apt install php-cli php-redis
//   holdfast judge -- php lock.php

require __DIR__ . '/adapter.php';

final class Locks
{
    private Redis $redis;
    private int $ttlMs;

    public function __construct(array $init)
    {
        $url = parse_url($init['redis_url']);
        $this->redis = new Redis();
        $this->redis->connect($url['host'], $url['port']);
        $this->redis->auth($url['pass']);
        $this->ttlMs = $init['ttl_ms'];
    }

    public function acquire(string $key, int $waitMs): ?array
    {
        $lease = [$key, bin2hex(random_bytes(16))];
        $until = microtime(true) + $waitMs / 1000;
        while (!$this->redis->set($key, $lease[1], ['nx', 'px' => $this->ttlMs])) {
            if (microtime(true) >= $until) {
                return null;
            }
            usleep(10_000);
        }
        return $lease;
    }

    public function release(array $lease): bool
    {
        $script = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])";
        return (bool) $this->redis->eval($script, $lease, 1);
    }
}

$about = ['name' => 'my lock', 'fencing' => false, 'renews' => false];
serve($about, fn (array $init) => new Locks($init));
