# One line about each strategy, and about each other file that a lesson shows.
strategy-none = 不加锁：两个订单可能都读到 10，又都写入 9
strategy-check-then-decrement = 先检查库存，之后再无条件地扣减：库存降到零以下，有约束则报错
strategy-local = 进程内的互斥锁：一个副本时不会超卖，两个副本时会
strategy-setnx = SETNX，然后 DEL：持锁者一死，商品就永远锁住
strategy-setnx-expire = SETNX、EXPIRE，然后 DEL：持锁者若死在前两步之间，商品就永远锁住
strategy-ttl = SET NX PX，然后 DEL：超过租约的持锁者会删除下一个持锁者的锁
strategy-check-then-del = SET NX PX 并记录持锁者；GET、比较、DEL：DEL 之前锁可能已经易主
strategy-expire-only = SET NX PX，从不删除：一个租约只做一次变更，业务更长时会有两个持锁者
strategy-owner = 教科书式的 Redis 锁：SET NX PX 并记录持锁者，比较后删除；业务比租约长时会有两个持锁者
strategy-watchdog = owner 加自动续期：进程暂停时会有两个持锁者
strategy-redlock = 在多个 Redis 的多数节点上加锁：进程暂停时会有两个持锁者
strategy-early-release = owner，但在提交之前释放：下一个持锁者可能读到旧值
strategy-wrong-key = owner，但锁住的是订单而不是商品：两个订单从不互相等待
strategy-fenced = 本项目的锁：每次写入都核对栅栏令牌和读到的版本
strategy-row-lock = select … for no key update：Postgres 一次只让一个事务锁住该行
strategy-atomic = 一条带条件的 update：读和写之间没有空隙
strategy-version = update … where version = 读到的版本：没有匹配的行就重新读取
strategy-serializable = serializable 隔离级别：两个冲突的事务由 Postgres 中止一个，再重试
strategy-advisory = 读取之前，用单独的语句获取 pg_advisory_xact_lock
strategy-units = 每件一行：订单锁住空闲的行，跳过别人锁住的行；“售罄”并非最终结果
strategy-queue = 进程内的有界队列，每种商品一个消费者：一个副本时不会超卖，两个副本时会
strategy-pre-deduct = 先在 Redis 里扣库存，再把订单写入 Postgres：服务器死在中间就少卖，Redis 丢数据就超卖
strategy-batched = fenced，并且同一商品所有等待的命令共用一把锁、一次读、一次写

source-claim-lua = 工作进程如何认领有序集合中的条目：推迟它，而不是移除
source-conditional-update-rs = 代替读取的条件更新
source-deduct-lua = 脚本怎样从商品的计数器扣数
source-deducted-rs = 订单怎样不经商品行写入，行又怎样随后跟上
source-expire-orders-rs = 未付款订单的库存如何正好归还一次
source-place-rs = 订单的写入：一条语句，存入计算出的值
source-place-order-rs = 订单因何被拒绝：库存不足、总价高于顾客的预期、超过限购
source-priority-rs = 哪个命令先执行，以及为什么没有命令会永远等下去
source-read-rs = 读取：新值由它计算而来
source-remove-hash-rs = 如何删除大 key 而不阻塞 Redis
source-units-rs = 逐件的行：锁住空闲的，卖出，再归还
