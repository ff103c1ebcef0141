# Why an answer to a lesson's question is wrong: a sentence for each of its three wrong answers.

## Why a lock
lesson-lost-update-wrong-1 = 不加锁时，两个订单会读到同一个库存，把同一件商品卖两次。
lesson-lost-update-wrong-2 = 重叠的订单不会失败：写入时，没有谁核对库存是否还是读到的那个数。
lesson-lost-update-wrong-3 = 订单读到至少还有一件才会卖出，所以写回的库存不会小于零。

lesson-one-replica-wrong-1 = 每个副本各有一把互斥锁，两个副本就会同时放行两个请求。
lesson-one-replica-wrong-3 = 不需要崩溃：另一个副本上的请求根本看不到这把互斥锁。
lesson-one-replica-wrong-4 = 不需要过载：两个副本上的两个订单只要重叠，就会读到同一个库存。

lesson-database-wrong-1 = B 是在语句执行途中等锁的，而这条语句的快照在 A 提交之前就已确定。
lesson-database-wrong-2 = B 用的是默认的隔离级别“读已提交”，在这个级别 Postgres 不会报序列化错误。
lesson-database-wrong-4 = B 还没有卖出任何商品：它执行的只是 `select`。

lesson-check-then-decrement-wrong-1 = 每次更新都从最新的行里减，所以扣了两件，没有更新丢失。
lesson-check-then-decrement-wrong-2 = 这条更新对库存没有条件，库存是多少都会改动这一行。
lesson-check-then-decrement-wrong-4 = Postgres 只拒绝约束不允许的写入，而这一列没有约束。

lesson-wrong-key-wrong-1 = 两把锁锁的是两个不同的订单，两次付款谁也不等谁。
lesson-wrong-key-wrong-2 = 没有哪把锁被占用：每次付款锁的都是自己那个订单的订单号。
lesson-wrong-key-wrong-4 = 没有理由拒绝：两把锁都空闲，两次付款读到的余额 10.00 也都够用。

## Writing the lock
lesson-dead-holder-wrong-1 = Redis 确实会发现连接断开，但 key 并不属于写入它的那个连接。
lesson-dead-holder-wrong-2 = Redis 只会自动清理设了 TTL 的 key，而 `SETNX` 没有设 TTL。
lesson-dead-holder-wrong-3 = 重启后的进程不知道自己持有过这把锁，和其他客户端一样拿不到。

lesson-let-it-expire-wrong-1 = 每个订单都把锁留在那里，下一个订单要等它过期才能开始。
lesson-let-it-expire-wrong-2 = 一个 TTL 只隔开相邻的两个订单，六个订单之间有五个间隔。
lesson-let-it-expire-wrong-4 = 每个订单只等前一个订单的锁过期，也就是一个 TTL，第一个订单则不用等。

lesson-wrong-delete-wrong-1 = 所有持锁者用的是同一个 key，所以 `DEL` 删掉的是 B 的锁。
lesson-wrong-delete-wrong-2 = B 执行完也会删除这个 key，而那时它已经是 C 的锁。
lesson-wrong-delete-wrong-3 = 后面的误删不需要过期：B 没有超过租约，执行完照样删掉 C 的锁。

lesson-check-then-delete-wrong-1 = `GET` 看到的只是那一刻的持锁者，等到 `DEL` 执行时，可能已经换人。
lesson-check-then-delete-wrong-3 = 标识确实各不相同，但 `DEL` 不比较标识：那里是谁的锁，就删谁的。
lesson-check-then-delete-wrong-4 = `DEL` 只看 key 的名字，而租约过期后，用这个名字的是 B 的锁。

lesson-outlived-wrong-2 = 写入的是 Postgres，它对 Redis 里的锁一无所知。
lesson-outlived-wrong-3 = A 先写入再释放，而且脚本只有在 key 里是 A 自己的 UUID 时才会删除。
lesson-outlived-wrong-4 = 没有谁告诉 A 租约已经过期，所以它不会重新加锁。

lesson-watchdog-wrong-1 = 锁不过期全靠续期，而暂停的进程发不出续期。
lesson-watchdog-wrong-2 = 这次运行的第一个订单执行了两个租约那么久，因为及时续期，锁一直没有丢。
lesson-watchdog-wrong-4 = 等锁的客户端再多，Redis 也只会把空闲的锁给其中一个。

## What still fails
lesson-fence-wrong-1 = 数据行不管谁先谁后：它只比较编号，而它已经见过 2。
lesson-fence-wrong-2 = A 被暂停了：它不知道租约已经过期，恢复后接着往下执行。
lesson-fence-wrong-3 = 写入的是 Postgres，Redis 根本看不到。

lesson-failover-wrong-1 = 主节点还没复制这个 key 就宕机了，升为主节点的从节点里没有这把锁。
lesson-failover-wrong-3 = Redis 不会发出锁已丢失的通知：A 得到的最后消息，是自己持有锁。
lesson-failover-wrong-4 = A 的租约只在宕机的主节点上；升为主节点的从节点没有这个 key，B 也就不用等。

lesson-redlock-wrong-1 = 第二个持锁者必须拿到剩下的全部三个节点，而其中至少一个存着第一个持锁者的锁。
lesson-redlock-wrong-2 = 剩下的两个节点不够多数，所以谁也拿不到锁。
lesson-redlock-wrong-4 = 其中一种就会：持锁者的进程暂停期间，租约在五个节点上全部过期。

## What it costs
lesson-waiting-wrong-1 = 两个都能拿到，但比本来可以的晚：锁已经空了，却还没人来试。
lesson-waiting-wrong-2 = 多发几条命令花不了多少时间；锁空闲着却没人来拿，浪费的时间更多。
lesson-waiting-wrong-4 = 怎么等只决定什么时候再试，Redis 仍然一次只把锁给一个。

lesson-reentrant-wrong-1 = 每次加锁都用新的持锁者标识，所以在锁看来，第二次调用是另一个客户端。
lesson-reentrant-wrong-3 = key 存在时，`SET NX` 什么也不写，所以第一次调用的锁还在。
lesson-reentrant-wrong-4 = Redis 不检测死锁：它只知道这个 key 存在，不知道谁在等它。

lesson-two-items-wrong-1 = 换成两把 Redis 锁才会这样；Postgres 等待一秒后会检测并解除死锁。
lesson-two-items-wrong-2 = 中止一个就够了：它的行锁随之释放，另一个事务就能继续。
lesson-two-items-wrong-4 = 先开始也没有用：它想要的那一行，在另一个事务结束之前一直锁着。

lesson-early-release-wrong-2 = A 的写入要到提交时才可见，而那时锁早已释放。
lesson-early-release-wrong-3 = 加锁的请求也会读到旧值，因为 A 在提交之前就释放了锁。
lesson-early-release-wrong-4 = 在 Postgres 里，行锁只阻塞对这一行的其他写入，不阻塞普通的 `select`。

lesson-hot-item-wrong-1 = 同一时刻只有一个订单在执行，处理器再多也是闲着。
lesson-hot-item-wrong-2 = Redis 发一次锁只要几微秒，等下一次重试和等提交却要好几毫秒。
lesson-hot-item-wrong-3 = 持锁的订单只用一个连接，其他订单等的是锁，不是连接。

lesson-units-wrong-1 = `skip locked` 不等任何行，别人锁住的行它直接跳过。
lesson-units-wrong-3 = 一行同一时刻只能被一个事务锁住，而 `skip locked` 不会返回已锁住的行。
lesson-units-wrong-4 = 这里没有队列：B 已经收到响应，那一件归下一个订单。

## Beyond locks
lesson-pre-deduct-wrong-1 = 只有 A 的服务器会把它还回去，而它已经死了；Redis 只知道一个数，不知道少的是谁的。
lesson-pre-deduct-wrong-3 = 计数器在服务器被杀死之前就减了，别的订单不会再从它那里拿到同一件。
lesson-pre-deduct-wrong-4 = 脚本执行完什么也不占着，计数器照样为别人扣数。
lesson-double-submit-wrong-1 = 这个键已随订单一起提交，Postgres 不允许再有一行用同一个键。
lesson-double-submit-wrong-2 = 用同一个键重发同样的请求就是重试，用它发不同的请求才是错误。
lesson-double-submit-wrong-4 = 只有还在执行的请求才会被拒绝，而这个请求的响应已随订单一起提交。

lesson-machine-gun-wrong-1 = 只有键相同的请求才互相排斥，而这里每个订单用的都是新键。
lesson-machine-gun-wrong-2 = 这些订单没有两个是重叠的：收到上一个的响应，才发下一个。
lesson-machine-gun-wrong-3 = 锁不统计每秒有多少请求，那是限流做的事。

lesson-unpaid-wrong-2 = 确实投递了两次，但第二个进程发现订单已经取消，就不再归还。
lesson-unpaid-wrong-3 = 前一个进程在被杀死之前已经提交，它的修改不会撤销。
lesson-unpaid-wrong-4 = 时机只决定由哪个进程归还：归还库存的语句同时修改订单状态，而状态只能改一次。

lesson-price-changed-wrong-2 = 两次改动先后持有同一把锁，而订单写入的是库存，不是价格。
lesson-price-changed-wrong-3 = 订单记录的是在锁内读到的那一行的价格，也就是新价格。
lesson-price-changed-wrong-4 = 锁确实不让，但价格在订单拿到锁之前就已经变了。

lesson-queue-wrong-1 = 它们只在被杀死的副本的内存里，另一个副本读不到。
lesson-queue-wrong-3 = 副本重启后队列是空的，而这两个订单没有存到别的任何地方。
lesson-queue-wrong-4 = 被杀死的进程不再执行任何代码，也就无法拒绝。

lesson-run-once-wrong-1 = 任务只执行片刻，一秒后第二个副本来加锁时，第一个副本早已释放。
lesson-run-once-wrong-3 = 这把锁里没有计划时间，释放之后连 key 也不在了。
lesson-run-once-wrong-4 = 第一个副本谁也不用等：它发现锁空闲，就直接执行。

## Appendix: Redis
lesson-big-key-wrong-1 = 对小 key 执行 `DEL` 只要几微秒，但这里要逐个释放所有字段。
lesson-big-key-wrong-2 = 不管用的是哪个 key，所有客户端的命令都由 Redis 一条接一条地执行。
lesson-big-key-wrong-3 = 那是 `UNLINK` 的做法；`DEL` 会自己释放内存，除非开启了 `lazyfree-lazy-user-del`。

lesson-pipeline-wrong-2 = Redis 要做的事确实一样多，但逐条发送时，大部分时间都花在往返上。
lesson-pipeline-wrong-3 = 往返次数只剩千分之一，但 Redis 仍要执行一千条命令。
lesson-pipeline-wrong-4 = 一千个小响应不过几 KB，缓存它们的代价远小于一千次往返。

lesson-no-rollback-wrong-1 = `EXEC` 什么也撤销不了：`LPUSH` 失败之前，`SET stock 9` 已经生效。
lesson-no-rollback-wrong-2 = `EXEC` 遇到错误不会停下，所以 `SET sold 1` 照样执行。
lesson-no-rollback-wrong-4 = Redis 什么也不撤销，出错命令所用的那个 key 也不例外。
