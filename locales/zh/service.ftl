# 服务的评测：`holdfast judge service --html FILE` 的页面，以及通向它的链接。
service-facts = { $instances } 个实例 · 种子 { $seed }
service-verdict-sound = 可靠：在{ $passes }下的 { $orders } 个订单中，没有超卖、丢失或重复，也没有偏差
service-verdict-found = 不可靠：{ $found }
service-verdict-undecided = 没有结论：除了对照，没有运行任何一项测试
service-found-under = { $balance }（{ $passes }）
service-no-proof = 判定程序只能找到实际发生的竞态。没有找到，并不证明不存在。
service-neither = { $pass }：有一个响应既不是“售出”，也不是“售罄”：
service-unanswered = { $pass }：有一个订单没有得到响应：
service-by-count = 重复的订单只按订单总数查找：没有 `[books] by_key`。
service-found-by-schedule = { $pass }：由第 { $number } 种顺序发现。
service-untried = { $pass }：至多切换两次的顺序还有 { $count } 种没有尝试：用 `--budget` 给更多时间。
service-passes-title = 各项测试
service-column-pass = 测试
service-column-oversold = 超卖
service-column-drift = 偏差
service-column-lost = 丢失
service-column-doubled = 重复
service-column-orders = 订单
service-column-sold = 售出
service-column-books = 账上
service-column-unknown = 未知
service-column-errors = 错误
service-column-p99 = p99（ms）
service-column-gap = 间隔（ms）
service-column-runs = 运行（k/n）
service-key-title = 各项测试和各列的含义
service-about-oversold = 超出期初库存的部分：响应为“售出”的订单，或账上的件数。
service-about-drift = 期初库存减去剩余库存，再减去账上的件数：有更新丢失，或扣了库存却没有订单。
service-about-lost = 响应为“售出”、账上却没有的订单。
service-about-doubled = 有不止一个订单的键。如果账上没有键：超出“每个可能下单的键各一个订单”的订单数。
service-about-orders = 一次运行的订单数，不论每个订单发送了几次。0 只对这么多订单成立，不能证明其他订单也没有。
service-about-sold = 响应为“售出”的订单。
service-about-books = 账上的订单所含的件数。
service-about-unknown = 没有得到响应的订单。
service-about-errors = 有一个响应既不是“售出”也不是“售罄”的订单，即使另一个响应是“售出”。
service-about-p99 = 100 个响应中有 99 个，用时不超过此值。
service-about-gap = 还有库存时，没有售出的最长时间。
service-about-runs = 3/10：10 次运行中有 3 次发现问题。其他数字属于这 3 次中的第一次。“语句交错”的每次运行是一种顺序，发现问题的是最后一种。

## 各项测试：名称，以及发生了什么
service-pass-control = 对照
service-pass-none = 并发
service-pass-gate = 闸门
service-pass-retry = 重试
service-pass-stretch = 数据库变慢
service-pass-interleavings = 语句交错
service-pass-replay = 重放
service-pass-lost-answer = 响应丢失
service-pass-database-cut = 数据库断线
service-pass-pause = 暂停
service-pass-kill = 杀死实例
service-pass-restart = 重启实例
service-pass-slow-commit = 提交缓慢
service-pass-redis-flush = 清空 Redis
service-pass-redis-restart = 重启 Redis
service-pass-redis-away = Redis 不可用
service-happens-control = 买家一个接一个地购买，人数多于件数。这样还超卖的商店根本没有检查。
service-happens-none = 16 个买家同时向所有实例购买，订单数是件数的四倍。
service-happens-gate = 判定程序锁住商品所在的行，发出多于件数的订单，然后放开。此时普通的读取已经完成，写入都在排队。如果没有发现问题，就再锁一次，锁 2 秒：放弃等待的订单，可能不加锁就继续。
service-happens-retry = 每个订单用同一个键同时向两个实例各发送一次，收到响应后再发送一次。
service-happens-stretch = Postgres 的每个响应延迟 5 到 20 ms。
service-happens-interleavings = 两个买家想要同一件商品。他们的语句和发给 Redis 的命令一次只放行一条，逐一尝试各种可能的顺序。
service-happens-replay = 再次运行记录下来的顺序：两个买家想要同一件商品，他们的语句按当初发现问题的顺序放行。
service-happens-lost-answer = 每隔一个订单，就在发出之后切断它的连接，买家带着同一个键再次发送。
service-happens-database-cut = 实例刚发出库存的提交，它到 Postgres 的所有连接就被切断：一次在提交完成之后，响应丢失；一次在提交到达之前。没有人再次发送订单。
service-happens-pause = 实例的读取、写入或提交刚得到响应，它就被暂停 3 秒，或比它的锁更久，然后继续。
service-happens-kill = 实例的读取、写入或提交刚得到响应，它就被杀死，然后重新启动。
service-happens-restart = 实例一个接一个地在处理订单时收到 SIGTERM，结束后重新启动。10 秒后还没有结束的会被杀死。
service-happens-slow-commit = 写过库存的事务，其 COMMIT 晚 50 到 200 ms 到达 Postgres；如果服务有锁，第一个 COMMIT 晚得超过锁的时长。期间事务保留它的锁，谁也看不到它写了什么。自动提交的语句不延迟。
service-happens-redis-flush = 一个订单刚读了库存或取走一件时，Redis 丢失所有 key。等另一个订单取走一件，或 3 秒之后，它才继续。
service-happens-redis-restart = 一个订单刚读了库存或取走一件时，Redis 被杀死，重启后为空。等另一个订单取走一件，或 3 秒之后，它才继续。
service-happens-redis-away = 一个订单刚读了库存或取走一件时，Redis 拒绝所有连接 3 秒。得到错误的买家等一秒。

## 发现问题时的两个请求
service-requests-title = 两个请求
service-requests-lead = 每个错误都用单独的两个请求重现一次。时间从上到下，单位是毫秒，从第一个请求算起。每条语句下面是它用了多久，以及 Postgres 或 Redis 的响应。虚线表示语句在等待。
service-not-shown = { $passes }：单独的两个请求没有重现所发现的问题。
service-under = 这两个请求是在“{ $pass }”下发送的，它更清楚地显示同一个错误。
service-held = 这期间，判定程序锁住了商品所在的行。
service-request = 买家 { $buyer }，实例 { $instance }
service-waits = 等待
service-answered-after = { $ms } ms 后得到响应
service-decisive = 起决定作用
service-decisive-legend = ▶ 起决定作用：订单写入之前最后读到的，以及它写入的。
service-left-out = （省略：{ $names }）
service-no-answer = 没有响应
service-struck-database-cut = 它到 Postgres 的连接被切断
service-struck-pause = 实例被暂停
service-struck-kill = 实例被杀死
service-struck-restart = 实例收到 SIGTERM
service-struck-redis-flush = Redis 丢失所有 key
service-struck-redis-restart = Redis 重启后为空
service-struck-redis-away = Redis 拒绝所有连接
service-cure-title = 怎么办
service-lesson-mistake = 演示这个错误的课程：{ $title }，`holdfast lesson { $name }`
service-lesson-cure = 演示解决办法的课程：{ $title }，`holdfast lesson { $name }`
service-recipe = 现成的做法：代码库中的 `{ $file }`

## 已知的错误，与其说明的开头相同，以及怎么办
service-pattern-no-check = 没有检查
service-pattern-read-then-write = 先读后写
service-pattern-check-then-decrement = 先检查，再做相对扣减
service-pattern-check-then-insert = 先计数，再插入
service-pattern-check-elsewhere = 检查在另一个事务里
service-pattern-order-without-unit = 订单没有取到货
service-pattern-two-transactions = 两个事务
service-pattern-released-before-commit = 提交前就释放了锁
service-pattern-lease-outlived = 业务比租约长
service-pattern-key-not-unique = 键不唯一
service-pattern-unknown = 不是已知的错误
service-cure-no-check = 把检查放进写入语句：`update products set stock = stock - 1 where id = $1 and stock >= 1`。没有改动任何行，就是售罄。
service-cure-read-then-write = 让数据库带着条件计算：`update products set stock = stock - 1 where id = $1 and stock >= 1`。没有改动任何行，就是售罄。如果必须由程序计算，就在写入的事务里用 `for no key update` 读取，或者只在行的版本仍与读到的相同时才写入。
service-cure-check-then-decrement = 在写入语句里再检查一次：`update products set stock = stock - 1 where id = $1 and stock >= 1`。没有改动任何行，就是售罄。或者在写入的事务里用 `for no key update` 读取：第二个请求会等待，读到的是剩下的库存。
service-cure-check-then-insert = 在插入的事务里，先用单独一条语句锁住计数所依据的东西，再计数：用 `select … for no key update` 锁住记录总数的那一行，或者用 `pg_advisory_xact_lock`。或者让事务使用 `serializable` 隔离级别，被 Postgres 中止的就重试。或者在这些行之外再保存一个计数：`update products set stock = stock - 1 where id = $1 and stock >= 1`。没有改动任何行，就是售罄。
service-cure-check-elsewhere = 在同一个事务里检查和写入，并在检查时锁住该行：`select … for no key update`。或者把检查放进写入语句：`update … where id = $1 and stock >= 1`。事务一结束，它读到的内容就可能过时。
service-cure-order-without-unit = 在同一个事务里接受订单并取货，没有货就拒绝订单：付款之前，`update products set stock = stock - 1 where id = $1 and stock >= 1` 必须改到一行。
service-cure-two-transactions = 在同一个事务里写入库存和订单，崩溃时要么两者都在，要么都不在。如果它们在两个存储里，先写下要做的事，再由一个任务完成或撤销只做了一半的事。
service-cure-released-before-commit = 提交之后再释放锁：在事务之外释放，或者用随事务结束的锁（`pg_advisory_xact_lock`）。也可以让数据库带着条件计算，这样就不需要锁：`update products set stock = stock - 1 where id = $1 and stock >= 1`。
service-cure-lease-outlived = 让数据库拒绝迟到的写入：行里保存最大的栅栏令牌和版本，每次写入都核对两者。租约再长，也只能让它更少发生，不能避免。
service-cure-key-not-unique = 给键加上唯一索引，并在订单的事务里写入它：`insert … on conflict do nothing`。没有插入任何行，就返回第一个请求得到的响应。或者先锁住购物车或顾客所在的行：第二个请求会等待，然后看到已有的订单。
service-cure-unknown = 找出判断“还有库存”的语句或调用，看两个请求能不能都通过它。写入语句本身的检查不会被两个请求同时通过：`update … where id = $1 and stock >= 1`。
service-cure-redis-lock = 两个请求在 Redis 里都持有过锁，或查看过锁：用一条命令获取它（`set … nx px …`），并一直持有到提交之后。

## 其他页面通向服务评测的链接，以及已评测服务的列表
service-own-title = 你自己的商店会超卖吗？
service-own-about = 判定程序扮成十六个买家同时向它下单，并显示互相冲突的两个请求。任何语言都可以，数据库是 Postgres。
service-own-link = 你自己的商店呢？`holdfast judge service` 会寻找互相冲突的两个请求
service-own-how = 评测你自己的服务：`holdfast judge service --init fastapi`（或 `express`、`django`、`spring`、`actix`）写出待填写的 `service.toml`，再运行 `holdfast judge service service.toml`。指南是代码库中的 `docs/SERVICE.md`。
service-listed-sound = 可靠：没有超卖、丢失或重复，也没有偏差
service-judged-title = 服务的评测
service-judged-lead = `holdfast judge service` 评测整个商店，数出售出却并不存在的件数。每个商店都以固定的版本安装。数字来自一台机器，重复售出多少件因机器而异。下文是英文。
