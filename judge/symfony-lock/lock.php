<?php

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\LockInterface;
use Symfony\Component\Lock\Store\RedisStore;

require __DIR__ . '/../common/adapter.php';
require_once 'Symfony/Component/Lock/autoload.php';

final class Locks
{
    private LockFactory $factory;
    private float $ttl;

    public function __construct(array $init)
    {
        $url = parse_url($init['redis_url']);
        $redis = new Redis();
        $redis->connect($url['host'], $url['port']);
        if (isset($url['pass'])) {
            $redis->auth($url['pass']);
        }
        $this->factory = new LockFactory(new RedisStore($redis));
        $this->ttl = $init['ttl_ms'] / 1000;
    }

    public function acquire(string $key, int $waitMs): ?LockInterface
    {
        $until = microtime(true) + $waitMs / 1000;
        $lock = $this->factory->createLock($key, $this->ttl);
        while (!$lock->acquire()) {
            if (microtime(true) >= $until) {
                return null;
            }
            // As acquire(true) does, which has no timeout.
            usleep((100 + random_int(-10, 10)) * 1000);
        }
        return $lock;
    }

    /** The library does not return whether the lock was still held. */
    public function release(LockInterface $lock): bool
    {
        $lock->release();
        return true;
    }
}

$version = trim(shell_exec("dpkg-query -W -f '\${Version}' php-symfony-lock 2>/dev/null") ?? '');
$about = ['name' => "Symfony Lock $version", 'fencing' => false, 'renews' => false];
serve($about, fn (array $init) => new Locks($init));
