# 该用哪种锁？五个问题，以及答案和代价。
choose-title = 该用哪种锁？
choose-lead = 适用于先读后改的值。五个问题，一个答案，以及它的代价。
choose-processes = 有几个进程会修改这个值？
choose-processes-one = 一个
choose-processes-several = 多个，在一台或多台机器上
choose-money = 丢失一次更新的代价是什么？
choose-money-no = 很小：比如页面多算一遍，或浏览量少记一次
choose-money-yes = 钱、商品或数据
choose-fence = 存储能否在每次写入时核对一个编号：栅栏令牌或版本号？
choose-fence-no = 不能：文件、设备、别家公司的 API
choose-fence-yes = 能：数据库，用 `update … where version = 41`
choose-hot = 这个值是热点吗：会有很多请求同时修改它吗？
choose-hot-yes = 是：最后几张票，所有人都往里付款的账户
choose-hot-no = 不是：很少有两个请求同时修改
choose-wait = 请求可以排队等待吗？
choose-wait-yes = 可以，等几毫秒
choose-wait-no = 不可以：必须立即响应，哪怕是“请重试”
choose-show = 看答案
choose-open = 还需要回答一个问题
choose-price = 代价
choose-lesson = 课程：{ $title }
choose-judged = 评测：{ $name }
choose-evidence = 评测结果
choose-one-statement = 如果一条语句就能完成（`update items set stock = stock - 1 where stock >= 1`），就不需要锁。
choose-local = 进程内的互斥锁。
choose-local-price = 一旦有第二个进程，它就什么也保护不了。同一台机器上的多个进程，可以锁文件（`flock`）。
choose-owner = 教科书式的 Redis 锁：带持锁者和过期时间的 key，只有持锁者能删除。
choose-owner-price = 业务比租约长，或 Redis 发生主从切换时，会有两个持锁者，并丢失一次更新。
choose-batched = 带栅栏令牌的锁，所有等待的请求共用一次读和一次写。
choose-batched-price = 代码最多，每个值要有一个队列，还要有一个任务负责成批执行。此外要多运维一台 Redis。
choose-fenced = 带栅栏令牌的锁，只试一次：拿不到就立即拒绝。
choose-fenced-price = 高负载下，多数请求会被拒绝，需要重试。还要多运维一台 Redis。
choose-row-lock = 数据库的行锁：`select … for update`。
choose-row-lock-price = 每个等待者占用一个连接；持锁者暂停时，该行一直锁住，直到数据库结束它的会话。
choose-version = 不加锁：版本仍是读到的那个才写入，否则重新读取。
choose-version-price = 两个请求相遇时，其中一个要重来；次数太多，请求就会放弃。
choose-needed = 还需要
choose-local-needed = 请求要幂等：客户端重复的请求，任何锁都会执行两次。
choose-owner-needed = 只要丢失一次更新代价很小，就不需要别的。如果重复请求的代价更大，请求要幂等。
choose-advisory = 数据库里随会话结束的锁：`pg_advisory_lock`。它没有会被业务超过的租约。
choose-advisory-price = 每个等待者占用一个连接。会话被切断或数据库主从切换后，锁已归另一个客户端，第一个却还在执行。如果只有 Redis，自动续期的租约（`watchdog`）在每次暂停和主从切换后都会丢失更新。
choose-advisory-needed = 会话结束时，客户端要在写入前停下；请求要幂等。一旦存储能核对编号，就要核对：没有锁能代替它。
choose-batched-needed = 每次写入都要核对栅栏令牌：否则它只是带租约的锁。请求要幂等。
choose-fenced-needed = 每次写入都要核对栅栏令牌：否则它只是带租约的锁。请求要幂等。
choose-row-lock-needed = 读和写要在同一个事务里，并限制空闲事务的时间：这样会话被切断时，写入也随之取消。（评测时锁在单独的会话中，切断它不影响写入。）请求要幂等：提交的确认可能丢失。
choose-version-needed = 重试要有上限。请求要幂等：提交的确认可能丢失。

## 此页、评测和自写锁的练习同在一处
prove-title = 选锁与验证
prove-lead = 问题：你的值需要哪种锁？证据：别人的锁和商店，在同样的故障下怎么样。练习：自己写一把锁。
prove-judged = 评测
prove-course = 自己写锁
