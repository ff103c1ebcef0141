# Lessons: title, claim, primer, question, four answers and three takeaways of each, in teaching order.
lesson-chapter-why = 为什么要加锁
lesson-chapter-writing = 动手写锁
lesson-chapter-failures = 锁依然挡不住什么
lesson-chapter-costs = 锁的代价
lesson-chapter-beyond = 锁之外
lesson-chapter-redis = 附录：Redis

## Why a lock
lesson-lost-update-title = 丢失更新
lesson-lost-update-claim = 不加锁时，两个订单都读到 10，又都写入 9：卖出两件，库存只减一。库存始终不为负，卖出的却比实际有的多。
lesson-lost-update-primer = 商店有两台服务器（副本），每种商品只存一个数：库存。卖一件时，服务器先读库存，至少还有 1 件就减一，再写回去。两台服务器同时为许多买家这样做。
lesson-lost-update-question = 100 件商品，16 个买家，400 个订单，不加锁。会卖出多少件？
lesson-lost-update-guess-1 = 正好 100 件
lesson-lost-update-guess-2 = 不到 100 件：相互重叠的订单会失败
lesson-lost-update-guess-3 = 超过 100 件，库存变成负数
lesson-lost-update-guess-4 = 超过 100 件，但库存从不为负
lesson-lost-update-takeaway-1 = “先查询，再更新”是两步，别的请求可以插到两步之间。
lesson-lost-update-takeaway-2 = 库存从未小于零，检查负库存什么也查不出来。账本能查出来：有两条记录的 `before`（变动前）相同。
lesson-lost-update-takeaway-3 = 锁要包住整个事务才管用：读取之前加锁，提交之后才释放。

lesson-one-replica-title = 进程内的锁，两个副本
lesson-one-replica-claim = 进程内的互斥锁，一个副本时一件也不会多卖，两个副本时就会超卖。
lesson-one-replica-primer = 互斥锁一次只让一个请求读库存、减一、写回，其他请求等待。它是一个进程内存里的变量。为了承受更多请求，商店把同一个程序运行在几个进程里，这些进程就是副本。
lesson-one-replica-question = 每个副本在自己的内存里为每种商品保存一把互斥锁。现有 100 件商品出售，什么时候会卖出超过 100 件？
lesson-one-replica-guess-1 = 永远不会：互斥锁一次只放行一个请求
lesson-one-replica-guess-2 = 只要有两个副本在处理订单
lesson-one-replica-guess-3 = 只有某个副本持锁时崩溃才会
lesson-one-replica-guess-4 = 只有机器过载才会
lesson-one-replica-takeaway-1 = 互斥锁只能隔离同一进程内的线程，另一个进程有它自己的互斥锁。
lesson-one-replica-takeaway-2 = 单副本时所有测试都能通过；一旦扩到两个副本，或者滚动发布时新旧版本同时运行，它就失效。
lesson-one-replica-takeaway-3 = 多个进程共享数据，就要有一把它们也共享的锁。

lesson-database-title = 只用 Postgres 的五种做法
lesson-database-claim = 单靠 Postgres 就有五种办法把订单隔开，都不会超卖，只是代价不同。如果在读库存的同一条语句里获取咨询锁，就来不及了：读到的还是旧快照。
lesson-database-primer = Postgres 自己也有锁：`pg_advisory_xact_lock(key)` 一直等到没有别的事务占用这个 key，然后占用到自己的事务结束。事务写入的内容，提交之后别人才看得到。
lesson-database-question = 库存 10 件。A 已卖出一件但尚未提交。B 执行 `select stock, pg_advisory_xact_lock(key) from items`，等待 A 的锁。A 提交后，B 看到的库存是多少？
lesson-database-guess-1 = 9：它等到了锁，所以能看到 A 的提交
lesson-database-guess-2 = 没有结果：Postgres 以序列化错误中止 B
lesson-database-guess-3 = 10：语句一直使用开始时的快照
lesson-database-guess-4 = 8：A 的一件和它自己的一件都已扣除
lesson-database-takeaway-1 = 数据如果都在同一个 Postgres 里，就不需要 Redis 锁：这五种做法都不会出错，哪怕进程暂停或被杀死。
lesson-database-takeaway-2 = 一条语句就够的话用 `atomic`：行只在这条语句执行时锁住。`version` 和 `serializable` 让没抢到的从头再来，竞争激烈时大多数请求都抢不到。
lesson-database-takeaway-3 = 一条语句只看得到它开始时已提交的数据。所以要用单独的语句加锁，再读取。

lesson-check-then-decrement-title = 先检查，再扣减
lesson-check-then-decrement-claim = 请求先检查库存，之后再无条件地减一，两个请求就会都卖出最后一件，库存降到零以下。约束会把第二笔销售变成报错。
lesson-check-then-decrement-primer = `update items set stock = stock - 1` 让 Postgres 来减：锁住最新的行，读取，写回。两条这样的更新会互相等待。许多商店在请求开始时检查库存，办完其他事才发送这条更新。
lesson-check-then-decrement-question = 只剩一件。A 和 B 都检查过，库存里有一件，然后各发送一次 `update items set stock = stock - 1`。这一列没有约束。结果如何？
lesson-check-then-decrement-guess-1 = 库存 0，两个都卖出：有一次更新丢失
lesson-check-then-decrement-guess-2 = 库存 0，卖出一个：第二次更新没有改动任何行
lesson-check-then-decrement-guess-3 = 库存 −1，两个都卖出
lesson-check-then-decrement-guess-4 = 库存 0，卖出一个：Postgres 不允许库存小于零
lesson-check-then-decrement-takeaway-1 = `stock = stock - 1` 防得住丢失更新，防不住超卖：账本没有分叉，最后却小于零。
lesson-check-then-decrement-takeaway-2 = 检查过的，到写入时可能已经变了。检查要放进更新语句：`where id = $1 and stock >= 1`。没有改动任何行，就是售罄。
lesson-check-then-decrement-takeaway-3 = 约束 `check (stock >= 0)` 保住了库存，顾客得到的却是内部错误，而不是“售罄”。它是最后一道防线，不是第一道。

lesson-wrong-key-title = 锁加错了 key
lesson-wrong-key-claim = 锁住订单号，保护不了两个订单共用的余额。
lesson-wrong-key-primer = 锁有名字，就是它的 key：只有锁同一个 key 的客户端才会互相排斥。付款时先读账户余额，减去价格，再写回去。
lesson-wrong-key-question = 每次付款都锁住所付订单的订单号。一个余额为 10.00 的账户同时支付两个 1.00 的订单，之后余额是多少？
lesson-wrong-key-guess-1 = 8.00：锁把两次付款隔离开了
lesson-wrong-key-guess-2 = 9.00：其中一次付款因锁被占用而遭拒绝
lesson-wrong-key-guess-3 = 9.00：两个订单都已付款，有 1.00 没有扣
lesson-wrong-key-guess-4 = 10.00：两次付款都被拒绝
lesson-wrong-key-takeaway-1 = 要锁住被修改的东西（这里是余额），而不是手边的东西（订单）。
lesson-wrong-key-takeaway-2 = 这种锁的所有测试都能通过，因为锁本身没有问题，只有账本看得出错误。
lesson-wrong-key-takeaway-3 = 本商店的每次写入都声明自己需要哪个 key，锁了别的 key 会当作程序错误被拒绝。

## Writing the lock
lesson-dead-holder-title = 持锁者死了
lesson-dead-holder-claim = 没有过期时间的锁，持锁者一旦被杀死，就永远锁住。SETNX 和 EXPIRE 分成两条命令，同样留下这个漏洞。
lesson-dead-holder-primer = Redis 里的锁就是一个大家约定好的 key。`SETNX` 只在 key 不存在时写入：谁写进去，谁就持有锁。执行完毕，持锁者用 `DEL` 删除它。
lesson-dead-holder-question = 用 `SETNX` 加锁的持锁者被杀死了。下一个客户端什么时候能拿到锁？
lesson-dead-holder-guess-1 = 马上：Redis 会发现连接已断开
lesson-dead-holder-guess-2 = 过一会儿：Redis 会清理不用的 key
lesson-dead-holder-guess-3 = 等被杀死的进程重启之后
lesson-dead-holder-guess-4 = 只有等人手动删除这个 key 之后
lesson-dead-holder-takeaway-1 = Redis 只保存 key，不知道它是哪个客户端写的，也不知道那个客户端是否还活着。
lesson-dead-holder-takeaway-2 = 用第二条命令设置过期时间，就可能永远设不上。`SET key value NX PX ms` 用一条命令完成两件事。
lesson-dead-holder-takeaway-3 = 靠人手动删除遗留的锁，总有一天会删掉仍在工作的持锁者的锁。

lesson-let-it-expire-title = 不删除，等它过期
lesson-let-it-expire-claim = 锁从不删除，只等它过期：所有业务都比 TTL 短才安全，而且每次变更都要耗掉一个 TTL。
lesson-let-it-expire-primer = Redis 可以在一段时间（TTL）之后自动删除 key。这种锁就靠它：谁写入 key 谁持有锁，谁也不删除。key 一消失，下一个订单就重新写入。
lesson-let-it-expire-question = 锁从不删除，300 ms 后过期；一个订单需要 10 ms。同一商品的六个订单至少需要多久？
lesson-let-it-expire-guess-1 = 60 ms：6 个 10 ms
lesson-let-it-expire-guess-2 = 300 ms：一个 TTL
lesson-let-it-expire-guess-3 = 1.5 s：五个 TTL
lesson-let-it-expire-guess-4 = 3.6 s：每个订单两个 TTL
lesson-let-it-expire-takeaway-1 = 不释放锁，每次变更都要等满一个 TTL，而 TTL 必须按最长的业务来定。
lesson-let-it-expire-takeaway-2 = TTL 越短，卖得越快，也越早出错：业务一旦比它长，就会与下一个持锁者同时执行。
lesson-let-it-expire-takeaway-3 = 如果一件事在一段时间内最多只该发生一次，比如发提醒邮件，这种锁正合适。

lesson-wrong-delete-title = 误删别人的锁
lesson-wrong-delete-claim = 这种锁会过期，但没有记下持锁者是谁。A 超过租约后删掉 B 的锁，B 删掉 C 的锁，C 删掉 D 的锁，一路连锁下去。
lesson-wrong-delete-primer = 持锁者删除 key 来释放锁。会自动过期的锁叫租约：即使持锁者死了，锁也会自动失效。加锁和过期时间要写在一条命令里：在 `SETNX` 和 `EXPIRE` 之间崩溃，锁就永远留着。同一种商品的锁用同一个 key，没有记下持锁者是谁。
lesson-wrong-delete-question = A 的锁已过期，现在 B 持有锁。A 执行完毕，删除这个 key。损害会持续多久？
lesson-wrong-delete-guess-1 = 没有损害：A 的 key 已过期，`DEL` 删不到东西
lesson-wrong-delete-guess-2 = 到 B 执行完为止
lesson-wrong-delete-guess-3 = 到再过一个 TTL 为止
lesson-wrong-delete-guess-4 = 只要不断有客户端来就一直持续：每个都删除下一个的锁
lesson-wrong-delete-takeaway-1 = `DEL key` 不看锁是谁的，一律删掉；过期之后，那已经是别人的锁。
lesson-wrong-delete-takeaway-2 = 一个持锁者超过租约就够了：B 和 C 从未超过，却照样删掉了下一把锁。
lesson-wrong-delete-takeaway-3 = 释放锁时，“确认是自己的”和“删除”必须在同一步里完成。

lesson-check-then-delete-title = 先检查，再删除
lesson-check-then-delete-claim = 用一条命令检查持锁者，再用另一条命令删除 key，仍可能删掉别人的锁。
lesson-check-then-delete-primer = 持锁者标识是每次加锁都不同的一个值，存在锁里，客户端由此看出是谁的锁。`GET` 返回它，`DEL` 删除 key。每条命令都要发给 Redis，再等响应。
lesson-check-then-delete-question = 现在每把锁都存有持锁者标识。A 执行 `GET`，看到是自己的标识，再执行 `DEL`。这可能删掉谁的锁？
lesson-check-then-delete-guess-1 = 只会删自己的：它刚检查过
lesson-check-then-delete-guess-2 = 可能删别人的：如果锁恰好在两条命令之间过期
lesson-check-then-delete-guess-3 = 可能删别人的，但只有两个持锁者标识相同时才会
lesson-check-then-delete-guess-4 = 谁的也删不掉：过期后 `DEL` 会失败
lesson-check-then-delete-takeaway-1 = 等你按检查结果行动时，结果可能已经过时。这又是“先查询，再更新”，只不过被更新的值就是锁本身。
lesson-check-then-delete-takeaway-2 = 这个空隙是一次网络往返那么长；进程若暂停，暂停多久就有多长。
lesson-check-then-delete-takeaway-3 = 比较和删除要在一个原子步骤里完成：用 Redis 的 Lua 脚本。

lesson-outlived-title = 业务比租约长
lesson-outlived-claim = 教科书式的锁（UUID 标识持锁者，用一个脚本比较并删除）只会删除自己的 key；但业务时间超过租约时，仍会有两个持锁者。
lesson-outlived-primer = 租约是 Redis 里会自动过期的锁：持锁者死了，也不会永远占着。key 和过期时间由一条命令写入；如果在 `SETNX` 和 `EXPIRE` 之间崩溃，锁就永远留着。库存在 Postgres 里：持锁者读取、处理、写入。
lesson-outlived-question = A 的租约是 300 ms，A 还在执行时租约过期，B 拿到了锁。A 执行到写入时会怎样？
lesson-outlived-guess-1 = 写入成功，没有任何报错
lesson-outlived-guess-2 = 写入被拒绝：它已不持有锁
lesson-outlived-guess-3 = 它先删除 B 的锁，再写入
lesson-outlived-guess-4 = 它先重新加锁，再写入
lesson-outlived-takeaway-1 = 租约只在过期之前起保护作用，释放得再谨慎也没有用。
lesson-outlived-takeaway-2 = 教科书式的锁（`owner`）在写入前不检查自己是否仍持有锁。检查也没用：租约可能在检查和写入之间过期。
lesson-outlived-takeaway-3 = 租约越长，这种情况越少，但崩溃后恢复得也越慢。看门狗不断续期，也只是让它更少：进程一暂停，续期也停了。

lesson-watchdog-title = 看门狗续期
lesson-watchdog-claim = 自动续期让长时间的业务一直持有锁。但进程若在读取之后暂停，恢复时仍会成为第二个持锁者。
lesson-watchdog-primer = 看门狗为租约续期：它是持锁者进程里的另一个线程，业务执行期间不断把租约重新设满。进程死了就没人续期，租约随之过期。
lesson-watchdog-question = 业务执行期间，每过三分之一租约就续期一次。还可能有两个客户端同时持有锁吗？
lesson-watchdog-guess-1 = 不可能：业务执行期间锁不会过期
lesson-watchdog-guess-2 = 可能：业务时间超过租约时
lesson-watchdog-guess-3 = 可能：进程暂停时，续期也跟着暂停
lesson-watchdog-guess-4 = 可能：两个客户端同时在等锁时
lesson-watchdog-takeaway-1 = 续期把“业务最长要多久”换成了“进程最长会暂停多久”。问题变好了，但仍没有解决。
lesson-watchdog-takeaway-2 = 垃圾回收、虚拟机挂起、容器迁移、磁盘变慢，都会让进程暂停。它自己察觉不到，因为它没有在运行。
lesson-watchdog-takeaway-3 = 暂停太久的进程，其写入必须由存储来拒绝；进程自己无从知道。

## What still fails
lesson-fence-title = 栅栏令牌
lesson-fence-claim = A 暂停得太久。数据行已经见过 B 的令牌 2，所以 Postgres 拒绝 A 带着令牌 1 的迟到写入。只靠令牌还不够：如果 A 先写、B 后写，两次写入都能通过，就有一笔销售丢失。所以写入时还要核对读到的行的版本。
lesson-fence-primer = 栅栏令牌是每次授予锁都会增大的编号。持锁者写入时带上它，数据行记下见过的最大编号。这样，存储就能拒绝来得太迟的持锁者。
lesson-fence-question = A 拿到锁，编号是 1，读到 10，一直暂停到租约过期。B 拿到锁，编号是 2，读到 10，写入 9。然后 A 继续执行，写入 9。会怎样？
lesson-fence-guess-1 = 写入成功：先拿到锁的是 A
lesson-fence-guess-2 = A 发现租约已经过期，不再写入
lesson-fence-guess-3 = Redis 拒绝它：A 的租约已经过期
lesson-fence-guess-4 = 数据行拒绝它：1 比 2 小
lesson-fence-takeaway-1 = 迟到的写入必须由存储本身拒绝。暂停的客户端不知道租约已过期，检查锁的结果也可能过时。
lesson-fence-takeaway-2 = 栅栏令牌只能说明有更晚的持锁者写过。只有行的版本相等，才能证明期间没有别的写入。
lesson-fence-takeaway-3 = Redlock 容忍得了 Redis 宕机，容忍不了客户端暂停，也没有编号可供数据行比较。

lesson-failover-title = Redis 主从切换
lesson-failover-claim = 主节点授予锁之后、复制到从节点之前宕机；升为主节点的从节点又授予同一把锁：出现两个持锁者。
lesson-failover-primer = 一个 Redis 是主节点，响应所有客户端；另一个是从节点，客户端得到响应之后不久，它才收到这次写入。主节点宕机，从节点就升为主节点。
lesson-failover-question = Redis 主节点把锁给了 A，在从节点收到这个 key 之前宕机。从节点升为主节点，B 向它请求这把锁。会怎样？
lesson-failover-guess-1 = B 被拒绝：锁在主从切换后仍然存在
lesson-failover-guess-2 = B 拿到锁，而 A 仍持有它
lesson-failover-guess-3 = B 拿到锁，A 会收到锁已丢失的通知
lesson-failover-guess-4 = B 要等到 A 的租约过期
lesson-failover-takeaway-1 = Redis 在从节点收到写入之前就已返回响应。切换之后，最后授予的几把锁可能等于没授予过。
lesson-failover-takeaway-2 = `WAIT` 返回有多少个从节点收到了写入，但不会撤销任何东西。它只是让漏洞变小。
lesson-failover-takeaway-3 = 锁服务既然可能丢锁，就需要能拒绝迟到写入的存储：见“栅栏令牌”。

lesson-redlock-title = Redlock：五个节点的多数
lesson-redlock-claim = 五个节点宕机两个，锁照常可用；宕机三个，就拒绝加锁。但持锁者一暂停，还是会出现两个持锁者，而它没有栅栏令牌来拦住。
lesson-redlock-primer = Redlock 把锁存到五个互相独立的 Redis 节点上。客户端拿到其中三个，也就是多数节点，就持有锁，直到租约过期。
lesson-redlock-question = 五个独立的 Redis 节点，锁要在多数节点上获得。下面哪种情况仍会产生两个持锁者？
lesson-redlock-guess-1 = 五个节点中同时宕机两个
lesson-redlock-guess-2 = 五个节点宕机三个
lesson-redlock-guess-3 = 持锁者暂停得比租约久
lesson-redlock-guess-4 = 以上都不会
lesson-redlock-takeaway-1 = 五个节点任意坏两个，多数仍在；坏了三个就报错，不会乱给锁。
lesson-redlock-takeaway-2 = Redlock 能容忍节点故障，容忍不了客户端暂停：五个节点和一个节点一样会让租约过期。
lesson-redlock-takeaway-3 = 它没有随每次授予递增的编号，存储无从比较：见“栅栏令牌”。

## What it costs
lesson-waiting-title = 立即失败、重试还是排队
lesson-waiting-claim = 立即失败的请求不用等，但也拿不到锁。重试时，锁空出来了也没人知道，要等到下一次尝试。排队时，锁一释放就唤醒下一个。
lesson-waiting-primer = 请求发现锁被占用，可以立即失败；可以睡一会儿再试，这里约每隔 50 ms 一次；也可以排队，持锁者释放锁时唤醒队首。
lesson-waiting-question = A 持有锁，B 和 C 在等，每隔约 50 ms 再试一次。与排队相比，这样做有什么代价？
lesson-waiting-guess-1 = 没有：最后两个都能拿到锁
lesson-waiting-guess-2 = 只是多发几条 Redis 命令
lesson-waiting-guess-3 = 时间：锁空着，直到有人再来试
lesson-waiting-guess-4 = 正确性：两个可能同时拿到锁
lesson-waiting-takeaway-1 = 立即失败代价小，把等待留给客户端。
lesson-waiting-takeaway-2 = 重试时，锁要空闲到下一次尝试；谁先拿到全凭运气，运气差的没有等待上限。
lesson-waiting-takeaway-3 = 排队并由通知唤醒，每个请求只等别人执行的时间，大家等的时间也差不多。

lesson-reentrant-title = 嵌套调用与可重入
lesson-reentrant-claim = 用教科书式的锁，嵌套调用会等它自己的调用者，一直等到超时。换成计数的可重入锁，或者把锁凭据（guard）传下去，就不会。
lesson-reentrant-primer = 教科书式的锁是一个 key，`SET NX` 只在它不存在时写入。它的值是随机的持锁者标识，每次加锁都不同。发现 key 已存在的调用者会不断重试，直到超时。
lesson-reentrant-question = 一个函数获取了某商品的锁，又调用另一个函数，后者要获取同一把锁。用教科书式的锁会怎样？
lesson-reentrant-guess-1 = 没事：两次调用出自同一个调用者
lesson-reentrant-guess-2 = 第二次调用等待第一次释放，直到超时
lesson-reentrant-guess-3 = 第二次调用顶替第一次的锁
lesson-reentrant-guess-4 = Redis 检测到死锁，立即返回错误
lesson-reentrant-takeaway-1 = 普通的锁每次加锁都是新的持锁者，所以把嵌套调用当作另一个客户端。
lesson-reentrant-takeaway-2 = 可重入锁要靠名字认出持锁者。若用进程名，同一进程的两个请求就会同时进入。
lesson-reentrant-takeaway-3 = 向下传递 guard，代码里就写明了哪个函数持有锁；没有额外开销，编译器还会检查。

lesson-two-items-title = 两种商品，相反的顺序
lesson-two-items-claim = 两个订单以相反的顺序锁两种商品。用 Redis 锁，两边都等到超时；用行锁，Postgres 中止其中一个。给 key 排序，就不会死锁。
lesson-two-items-primer = 事务修改一行，就锁住它，直到提交。另一个事务要改同一行，就得一直等。买两种商品的订单先后修改两行。
lesson-two-items-question = A 持有“茶”的行锁，想要“咖啡”；B 持有“咖啡”，想要“茶”。都是 Postgres 行锁。会怎样？
lesson-two-items-guess-1 = 两边都等到超时
lesson-two-items-guess-2 = Postgres 把两个都中止
lesson-two-items-guess-3 = Postgres 检测到死锁，中止其中一个
lesson-two-items-guess-4 = 先开始的事务两把锁都拿到
lesson-two-items-takeaway-1 = 死锁要有两个持锁者以不同的顺序加锁才会发生。给 key 排序，就不会发生。
lesson-two-items-takeaway-2 = Postgres 会检测自己的锁之间的死锁，Redis 不会；一边在 Redis、一边在 Postgres 的环，谁也检测不到。
lesson-two-items-takeaway-3 = 所以所有的锁使用同一个顺序：先幂等键，再订单，再按名称排序的商品，最后账户；而且都在获取数据库连接之前。

lesson-early-release-title = 提交之前就释放
lesson-early-release-claim = 锁在提交之前就释放，下一个持锁者就可能读到旧值。
lesson-early-release-primer = 事务的写入要等提交之后别人才看得到。这里的请求先获取 Redis 锁，再开始事务，读取，写入；然后释放锁，最后提交。
lesson-early-release-question = A 在锁内读取并写入，释放锁之后才提交。谁可能读到旧值？
lesson-early-release-guess-1 = 下一个持锁者：如果它在 A 提交之前读取
lesson-early-release-guess-2 = 没有请求会：A 是在锁内写入的
lesson-early-release-guess-3 = 只有不加锁的请求
lesson-early-release-guess-4 = 没有请求会：A 的行锁会阻塞读取
lesson-early-release-takeaway-1 = 写入要等到提交之后，别的事务才看得到。
lesson-early-release-takeaway-2 = 在 `@Transactional` 方法内部加锁就是这个错误：锁先释放，事务后提交。
lesson-early-release-takeaway-3 = 锁要包住事务：事务开始之前加锁，提交之后释放。

lesson-hot-item-title = 热点商品
lesson-hot-item-claim = 所有买家都抢同一种商品。批处理把排队的订单放进一把锁、一个事务里一起执行，每秒卖出的至少是教科书式的锁的三倍。这里的每种策略都没有超卖。
lesson-hot-item-primer = 抢购时，所有买家都买同一种商品。一个订单先获取该商品的 Redis 锁，开始事务，读库存，写库存，提交，然后才释放锁。发现锁被占用的订单过一会儿再试。
lesson-hot-item-question = 所有买家都抢同一种商品。用教科书式的锁，每秒销量受什么限制？
lesson-hot-item-guess-1 = 处理器数量
lesson-hot-item-guess-2 = Redis 的速度
lesson-hot-item-guess-3 = 数据库最多允许同时打开多少个连接
lesson-hot-item-guess-4 = 订单只能一个接一个地加锁、提交
lesson-hot-item-takeaway-1 = 订单一个接一个，提交也就一次接一次，而每次提交都要等磁盘。再好的锁也快不过它。
lesson-hot-item-takeaway-2 = 教科书式的锁更慢：在下一次重试之前，锁一直空闲。
lesson-hot-item-takeaway-3 = 反正要等的请求可以合成一批执行：一把锁、一次读、一次写，每个请求仍得到自己的响应。

lesson-units-title = 每件一行
lesson-units-claim = 每件商品占一行时，同一种商品的订单互不等待，也没有一件会卖两次。代价是：订单可能被当作售罄拒绝，最后却还剩一件。
lesson-units-primer = 库存不再是一个数字，每件商品各占一行。订单用 `select … for update skip locked limit 1` 锁住一个空闲的行（跳过别人锁住的行），标记为已售，再提交。
lesson-units-question = 只剩一件。A 已锁住它的行，还没有提交。B 的订单会怎样？
lesson-units-guess-1 = 等到 A 提交或放弃
lesson-units-guess-2 = 立刻被当作售罄拒绝，其实这一件还没有卖出
lesson-units-guess-3 = 得到同一件，于是它卖了两次
lesson-units-guess-4 = 排在 A 后面等候，一旦 A 放弃就立刻轮到它
lesson-units-takeaway-1 = 用许多行代替一行：同一种商品的订单锁住不同的行，因此可以并行提交，磁盘一次写入多个提交。
lesson-units-takeaway-2 = `skip locked` 不保证先后，也不保证结论：先来的可能空手而归，售罄的还会回来。让被拒绝的买家再试，或者让他们排队。
lesson-units-takeaway-3 = 代价是每件一行，每卖一件就留下一个要清理（vacuum）的旧版本。涉及整种商品的规则，例如每人限购，又需要对商品加锁。

lesson-pre-deduct-title = 先在 Redis 里预扣
lesson-pre-deduct-claim = 秒杀常见的做法是先在 Redis 里扣数，再写订单。服务器死在两步之间，就有一件卖不出去；Redis 丢了数据，就有一件卖了两次。按账本对账，两种都能修好。
lesson-pre-deduct-primer = 秒杀时，脚本先从 Redis 的计数器扣掉一件，然后才把订单写入 Postgres。计数器为 0 时，买家马上被拒绝。商品行里的库存随后才跟上订单。
lesson-pre-deduct-question = 有三件。A 从计数器扣了一件，订单写入之前，A 的服务器被杀死。随后另外三个人下单，一共卖出几件？
lesson-pre-deduct-guess-1 = 三件：A 的那件回到计数器
lesson-pre-deduct-guess-2 = 两件：A 的那件谁也买不到
lesson-pre-deduct-guess-3 = 四件：A 的那件又卖了一次
lesson-pre-deduct-guess-4 = 一件也没有：计数器一直被 A 锁住
lesson-pre-deduct-takeaway-1 = Redis 和 Postgres 没有共同的事务，死在两步之间，两边就对不上。先扣的是计数器，所以结果是少卖，不会有订单拿不到货。
lesson-pre-deduct-takeaway-2 = 清空，或丢了最后几次修改的主从切换，后果更重：计数器回来时不知道还在路上的订单，于是超卖。
lesson-pre-deduct-takeaway-3 = 账本记得每一个订单。趁没有订单在路上时拿计数器和它核对：少了的补回去，没有货的订单取消。

## Beyond locks
lesson-double-submit-title = 重复提交
lesson-double-submit-claim = 双击、响应丢失，或在提交后、响应前崩溃：只要带着同一个幂等键，订单就只下一次，只付一次款，每次尝试都得到同一个响应。
lesson-double-submit-primer = 客户端收不到响应，就不知道订单有没有下成，只好重发。幂等键是客户端为一个订单生成的标识，每次尝试都发送它，商店由此认出重复的请求。
lesson-double-submit-question = 副本提交了订单，在返回响应之前被杀死。客户端用同一个幂等键重发请求，会得到什么？
lesson-double-submit-guess-1 = 第二个订单
lesson-double-submit-guess-2 = 一个错误：这个键已经用过
lesson-double-submit-guess-3 = 第一次请求没有收到的那个响应
lesson-double-submit-guess-4 = 在键过期之前一直被拒绝
lesson-double-submit-takeaway-1 = 客户端为每个订单生成一个幂等键，每次重试都发送同一个键。
lesson-double-submit-takeaway-2 = 变更、幂等键和响应由同一条语句写入，所以崩溃时不会只写入一半。
lesson-double-submit-takeaway-3 = 幂等键上的锁只是让响应更快；保证只有一个订单的，是 Postgres 里唯一的那一行。

lesson-machine-gun-title = 机器高频刷接口
lesson-machine-gun-claim = 对客户端的幂等键加锁，同一时刻只放行它的一个请求，也不拖慢其他客户端。但它限制的是重叠，不是频率：限制频率要靠限流。
lesson-machine-gun-primer = 商店处理请求时，最先锁住它的幂等键。带某个键的请求还在执行时，带同一个键的另一个请求会被拒绝。
lesson-machine-gun-question = 一个客户端发送 40 个订单，每收到一个响应就发下一个，每个都用新的幂等键。键上的锁会拒绝多少个？
lesson-machine-gun-guess-1 = 除第一个外全部拒绝
lesson-machine-gun-guess-2 = 大约一半
lesson-machine-gun-guess-3 = 同一秒内后来的都拒绝
lesson-machine-gun-guess-4 = 一个也不拒绝
lesson-machine-gun-takeaway-1 = 幂等键最先加锁，所以重复请求只花一次 Redis 往返，不占用别人需要的行、锁和连接。
lesson-machine-gun-takeaway-2 = 锁防止两个请求同时执行。每次都等响应的客户端从不同时有两个请求，发多少都一样。
lesson-machine-gun-takeaway-3 = 每秒多少次要靠带时间的计数器，即限流（`--limit-client`）。实验室开启时限流关闭，因为负载都来自同一个地址。

lesson-unpaid-title = 未付款订单
lesson-unpaid-claim = 未付款订单占用的库存只归还一次，工作进程中途崩溃也不例外。付款和超时取消撞在一起时，只有一方成功，钱和库存对得上。
lesson-unpaid-primer = 订单到时未付款就会取消，库存归还。哪些订单到期由一个队列记着：它把订单投递给工作进程，如果过一阵子还没有被移出，就再投递一次。
lesson-unpaid-question = 工作进程从队列取出一个订单，归还了一件库存，提交，然后在把订单移出队列之前被杀死。队列把这个订单交给下一个工作进程。这件库存归还几次？
lesson-unpaid-guess-1 = 一次
lesson-unpaid-guess-2 = 两次：队列投递了两次
lesson-unpaid-guess-3 = 零次：下一个进程跳过它，前一个进程的操作被撤销
lesson-unpaid-guess-4 = 一次或两次，取决于时机
lesson-unpaid-takeaway-1 = 不丢消息的队列至少投递一次。要让效果只发生一次，得靠被修改的那一行。
lesson-unpaid-takeaway-2 = 订单状态用“比较并设置”修改，与库存或金额的变动在同一条语句里。两个互相竞争的变更只有一个成功。
lesson-unpaid-takeaway-3 = Redis 被清空时丢失的内容再也找不回来，除非另有记录。订单所在的行就是这份记录，它本身也可以当队列。

lesson-price-changed-title = 价格变了
lesson-price-changed-claim = 锁管的是下单，管不到页面显示之后的那段时间。价格在此期间上涨，顾客就会按一个没给他看过的价格买下。订单若带上页面显示的总价，而锁内读到的行更贵，就会被拒绝。
lesson-price-changed-primer = 页面读取价格时不加锁，顾客过一会儿才决定。订单再获得商品的锁（`fenced`），读取存有库存和价格的行，写入，提交。修改价格也要获得同一把锁。
lesson-price-changed-question = A 的页面显示 1.00，A 下单。订单拿到锁之前，店主把价格涨到 2.00。没有任何报错：订单获得锁，读取行，写入，提交。哪里出了问题？
lesson-price-changed-guess-1 = A 看到 1.00，订单却是 2.00
lesson-price-changed-guess-2 = 丢失了一次更新：行里又变回 1.00
lesson-price-changed-guess-3 = 订单是 1.00，比商店要的便宜
lesson-price-changed-guess-4 = 没有问题：有锁在，下单期间价格不可能改动
lesson-price-changed-takeaway-1 = 锁隔离的是在锁内做的事。顾客之前看到的可能已经变了，和任何不加锁读到的值一样。
lesson-price-changed-takeaway-2 = 页面显示的总价要随订单一起发送（这里是 `expected_total_cents`），在订单的事务里与它读到的行比较。请求一开始就检查，太早。
lesson-price-changed-takeaway-3 = 只拒绝对顾客更不利的：总价降低就照低价收，升高就先问。拒绝不存下任何东西，所以可以用同一个幂等键，带上新的总价重新发送订单。

lesson-queue-title = 用队列代替锁
lesson-queue-claim = 每种商品一个有界队列、一个消费者：一个副本时不会多卖，两个副本时超卖。队列满了，入队可以报错、返回失败、一直等，或只等一会儿。进程一死，队列里的东西就没了。
lesson-queue-primer = 除了给商品加锁，副本也可以只让一个线程来卖它。订单在副本内存的队列里等候，由这个线程（消费者）一个接一个地执行。
lesson-queue-question = 两个订单在某个副本内存里的队列中等待，这个副本被杀死。它们会怎样？
lesson-queue-guess-1 = 由另一个副本接手
lesson-queue-guess-2 = 就此丢失，也没有响应
lesson-queue-guess-3 = 副本重启后继续执行
lesson-queue-guess-4 = 副本停止前会先拒绝它们
lesson-queue-takeaway-1 = 只有一个消费者就不需要锁，因为没有别人同时执行。第二个副本就是第二个消费者。
lesson-queue-takeaway-2 = 有界队列能及早暴露过载：抛错、返回失败、阻塞或限时等待。补货这类能缓解缺货的命令优先执行。
lesson-queue-takeaway-3 = 内存里只放可以随进程丢失的东西：排队位置、续期定时器；订单和到期时间不行。同步移交不存放任何东西，所以发送方知道对方有没有接收。

lesson-run-once-title = 只执行一次的定时任务
lesson-run-once-claim = 两个副本上的定时任务，不加锁会执行两次。执行完就释放的锁，会让迟到的副本再执行一次。把任务名和计划时间存成唯一的一行，就只执行一次，持锁者崩溃也一样。
lesson-run-once-primer = 定时任务（比如生成报表）有规定的执行时间，而每个副本都有自己的时钟。副本的时钟到 12:00，就去获取任务的锁；发现锁被占用，就什么也不做。
lesson-run-once-question = 两个副本的定时计划相同。任务先加锁，执行片刻，再释放锁。其中一个时钟慢一秒。12:00 的任务执行几次？
lesson-run-once-guess-1 = 一次：第二个副本发现锁被占用
lesson-run-once-guess-2 = 两次：第二个副本发现锁空闲
lesson-run-once-guess-3 = 一次：锁里存有计划时间
lesson-run-once-guess-4 = 零次：两个副本互相等待
lesson-run-once-takeaway-1 = 锁防止两次执行同时发生。要防止之后再执行一次，释放锁之后必须有东西留下来。
lesson-run-once-takeaway-2 = 用任务名和计划时间标识一次执行，并设为唯一。迟到的副本就会发现它已经完成。
lesson-run-once-takeaway-3 = 持锁者可能在执行之后、记录之前崩溃，于是任务会重复。给执行效果同样的唯一名称，重复就不会改变任何东西。

## Appendix: Redis
lesson-big-key-title = 删除大 key
lesson-big-key-claim = 对一个大哈希执行 DEL，会阻塞所有客户端，直到每个字段都释放完。分批删除和 UNLINK 只阻塞其中一小部分时间。
lesson-big-key-primer = 哈希是有许多字段的一个 key，每个字段各占一块内存。Redis 用一个线程逐条执行所有客户端的命令。
lesson-big-key-question = 一个有几十万个字段的哈希不再需要了。对这一个 key 执行 `DEL`，其他客户端要付出什么代价？
lesson-big-key-guess-1 = 没有：它是一条命令，只要几微秒
lesson-big-key-guess-2 = 只有读这个哈希的客户端要等
lesson-big-key-guess-3 = 没有：由后台线程释放内存
lesson-big-key-guess-4 = 所有客户端都要等到每个字段释放完
lesson-big-key-takeaway-1 = Redis 一次只执行一条命令，key 越大，`DEL` 越久。过期删除、`RENAME` 覆盖它、`HGETALL` 也一样。
lesson-big-key-takeaway-2 = `UNLINK` 只摘除名字，由后台线程释放内存。没有它时，用 `HSCAN` 加 `HDEL` 每次删几百个字段，给其他客户端留出空隙。
lesson-big-key-takeaway-3 = `redis-cli --bigkeys` 可以提前找出大 key。服务器也可以让 `DEL` 惰性删除：`lazyfree-lazy-user-del`，Redis 默认关闭，Valkey 8 起默认开启。

lesson-pipeline-title = 管道：一次往返，一千条命令
lesson-pipeline-claim = 许多条命令合成一次往返，比同样多次往返快得多。
lesson-pipeline-primer = 客户端向 Redis 发一条命令并等待响应，就是一次往返。用管道时，它连续发出许多命令，不等响应，最后再一起读取。
lesson-pipeline-question = 向同一台机器上的 Redis 发送一千条小命令：先逐条发送，再用一个管道发送。管道快多少？
lesson-pipeline-guess-1 = 快好几倍：时间多花在往返上
lesson-pipeline-guess-2 = 一点也不快：Redis 要做的事一样多
lesson-pipeline-guess-3 = 快一千倍：一次往返代替一千次
lesson-pipeline-guess-4 = 更慢：Redis 要缓存所有响应
lesson-pipeline-takeaway-1 = 这样一条命令，Redis 自己只花很少的时间，其余都是往返。
lesson-pipeline-takeaway-2 = 管道只节省往返，没有别的作用。它不是事务：其他客户端的命令可以插在中间。
lesson-pipeline-takeaway-3 = 真实网络的往返比这里更久，管道节省得也更多。

lesson-no-rollback-title = MULTI 不会回滚
lesson-no-rollback-claim = MULTI/EXEC 不会回滚出错之前已执行的命令。无法入队的命令会使整个事务中止。DISCARD 只丢弃命令队列。
lesson-no-rollback-primer = `MULTI` 之后，Redis 只收集后面的命令。`EXEC` 再把它们依次执行，中间不会插入别的客户端的命令。`LPUSH` 是用于列表的命令。
lesson-no-rollback-question = 库存为 10。依次执行 `MULTI`、`SET stock 9`、`LPUSH stock x`（stock 不是列表）、`SET sold 1`、`EXEC`。之后 Redis 里是什么？
lesson-no-rollback-guess-1 = stock 为 10，没有 sold：一条命令失败，全部回滚
lesson-no-rollback-guess-2 = stock 为 9，没有 sold：出错后停止执行
lesson-no-rollback-guess-3 = stock 为 9，sold 为 1：错误不会撤销任何命令
lesson-no-rollback-guess-4 = stock 为 10，sold 为 1：只撤销那个 key 的修改
lesson-no-rollback-takeaway-1 = `EXEC` 依次执行队列中的命令，中途不被打断。它提供隔离，不提供撤销。
lesson-no-rollback-takeaway-2 = 格式错误的命令在入队时就被发现，整个事务中止。类型错误的命令在 `EXEC` 时才失败，而其他命令照样生效。
lesson-no-rollback-takeaway-3 = 必须一起成功的变更应放进 Postgres，或放进一个先检查、后写入的脚本。
