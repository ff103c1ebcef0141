# 锁的评测：单次评测页、列表，以及打开文件的表单。
judge-title = 锁的评测
judge-lead = 每把锁都在同样的故障下做同样的工作。账本会显示哪些锁丢失了更新。
judge-link = 锁的评测：真实的锁在这些故障下的表现
judge-list-title = 各故障下的结论
judge-list-none = 此版本没有附带评测。请先评测一把锁，再在这里打开文件。
judge-column-lock = 锁
judge-column-date = 评测日期
judge-cell-lost = { $lost ->
   *[other] 次丢失更新
}
judge-cell-runs = { $runs } 次运行中有 { $lost } 次丢失更新
judge-cell-safe = { $turns } 轮中没有丢失更新
judge-cell-safe-runs = { $runs } 次运行的 { $turns } 轮中没有丢失更新
judge-cell-elsewhere = 不涉及这把锁
judge-cell-back = 没有丢失更新；没有故障时令牌倒退的次数：{ $back }
judge-list-fenced = { $name }，并由存储检查令牌
judge-list-key = ▲ 7：最终丢失 7 次更新。▲ 3/5：5 次运行中有 3 次丢失更新。✓ 784：784 轮中没有丢失。↓ 12：没有丢失，但没有故障时令牌倒退了 12 次。○：没有丢失，且该故障不涉及这把锁使用的服务器或连接。–：该故障未运行。
judge-search = 搜索
judge-search-about = 锁、语言、存储
judge-search-found = { $count ->
   *[other] { $count } 个锁
}
judge-search-none = 评测过的锁里，没有一个的名称、语言或存储含有“{ $words }”。
judge-search-rows = { $locks }，共 { $rows } 行：↳ 是上一行的锁，并检查它的栅栏令牌
judge-columns-title = 各列的含义
judge-own-title = 评测你自己的锁
judge-own-how = 写一个几十行的适配器，运行 `holdfast judge --json FILE -- COMMAND`，然后在这里打开 FILE。文件只会显示，不会保存。
judge-file-label = 评测文件
judge-file-invalid = 文件没有打开。这不是 `holdfast judge --json FILE` 写出的文件。
judge-file-too-long = 文件没有打开。这份评测的页面会超过 2 MB：违规条数多于 `holdfast judge` 会报告的数量。请打开 `holdfast judge --html FILE` 写出的页面。
judge-not-drawn = 未画出：此页最多画 { $events } 个事件。`holdfast judge --html FILE` 写出的页面包含全部事件。
judge-opened = 从文件打开：没有保存，内容也未在此核对。

## 单次评测
judge-facts = 租约 { $ttl } ms · 种子 { $seed } · 栅栏令牌：{ $fencing } · 自动续期：{ $renews }
judge-yes = 有
judge-no = 无
judge-verdict-lost = { $faults } 种故障中有 { $under } 种出现丢失更新
judge-verdict-lost-touched = 触及它的 { $faults } 种故障中有 { $under } 种出现丢失更新；另外 { $others } 种不适用
judge-verdict-lost-undisturbed = 没有故障时也丢失更新
judge-verdict-safe = { $faults ->
    [0] 没有故障时，{ $turns } 轮中没有丢失更新
   *[other] 在 { $faults } 种故障下，{ $turns } 轮中没有丢失更新
}
judge-verdict-safe-touched = { $faults ->
    [0] 没有触及它的故障，{ $turns } 轮中没有丢失更新
   *[other] 在触及它的 { $faults } 种故障下，{ $turns } 轮中没有丢失更新
}；另外 { $others } 种不适用
judge-verdict-prevented = 要施加故障的进程里没有客户端获得锁，因此 { $faults } 种故障中有 { $prevented } 种未运行：锁在这些故障下的表现未知
judge-verdict-stopped = 在 { $stopped } 种故障下，锁空闲着，却再也没有客户端获得它：锁此后的表现未知
judge-unasked = { $verdict }；另有 { $count } 种故障没有要求运行：{ $faults }
judge-bypassed = 没有任何连接经过 --backend-proxy 的代理：网络故障没有触及锁与该服务器的连接
judge-lost-under = 丢失更新的故障：{ $faults }
judge-reach = 运行的 { $ran } 种故障中有 { $touching } 种触及这把锁：{ $faults }
judge-bound = 没有故障时，{ $turns } 轮中没有一轮丢失更新：有 95 % 的把握，丢失的不到 { $share } %
judge-verdict-nothing = 没有可评测的内容：没有运行任何故障
judge-half-fence-safe = 由存储检查它的栅栏令牌：没有丢失
judge-half-fence-back = 由存储检查它的栅栏令牌：没有丢失，但在{ $faults }下令牌倒退，存储因此拒绝持锁者
judge-half-fence-misordered = 由存储检查它的栅栏令牌：没有丢失，但没有故障时令牌也会倒退，存储因此可能拒绝任何持锁者
judge-half-fence-lost = 由存储检查它的栅栏令牌：在{ $faults }时仍丢失更新
judge-half-no-fence = 没有存储检查令牌：{ $verdict }
judge-not-compared = 丢失更新的次数不能互相比较：1 并不比 100 好。每个数字只说明：这里可能丢失更新。
judge-list-read = 数字是丢失更新的次数：账本里有、库存里没有的变更。请把一行读作“这个锁留给你的问题”：在“暂停”下丢失更新并不是库的缺陷。
judge-leaves = 这个锁留给你的问题：{ $what }
judge-leaves-fence = 每次写入都要由存储检查它的栅栏令牌
judge-leaves-late = 来得太晚的写入
judge-leaves-lease = 比租约长的工作
judge-leaves-memory = 丢失数据的 Redis
judge-leaves-session = 中断的连接
judge-missing = 有 { $faults } 种故障未运行。
judge-safety-title = 安全性
judge-cost-title = 可用性和代价
judge-result-lost = 丢失更新
judge-result-safe = 没有丢失
judge-result-back = 令牌倒退
judge-result-not-run = 未运行
judge-column-fault = 故障
judge-column-result = 结论
judge-column-lost = 丢失更新（k/n：运行）
judge-column-turns = 轮数
judge-column-fenced = 检查令牌时
judge-column-refused = 令牌拒绝次数
judge-column-saved = 丢锁通知挽救
judge-column-overlaps = 同时持锁的客户端对数
judge-column-release = 错误的释放
judge-column-fence = 令牌倒退
judge-column-busy = 误报“锁被占用”
judge-column-blocked = 阻塞（ms）
judge-column-starved = 从未获锁的客户端
judge-column-leftover = 残留的 key
judge-column-held = 持锁时间（%）
judge-column-p50 = 等待 p50（ms）
judge-column-p99 = 等待 p99（ms）
judge-column-ratio = p99 ÷ 公平队列
judge-column-jain = Jain 指数
judge-column-errors = 错误
judge-column-commands = 每次获锁的 Redis 命令数
judge-key-title = 故障和各列的含义
judge-about-lost = 账本里已售出、而最终库存没有体现的件数：客户端覆盖了它没有读到的修改。它可能一次覆盖上百次修改，随后又被另一个客户端覆盖，这时只丢失一次。所以 1 和 100 说明的是同一件事。3/5：5 次运行中有 3 次丢失更新。
judge-about-turns = 所有运行中获得锁的轮数：获取、读取、工作、写入、释放。除丢失的更新外，其他数字属于其中一次运行。
judge-about-fenced = 如果每次读取都登记栅栏令牌，每次写入都要求没有登记过更大的令牌，还会丢失的更新数。
judge-about-refused = 因此被拒绝的次数。
judge-about-saved = 适配器通知锁已丢失，因此在写入前停止、否则会丢失更新的轮数。
judge-about-overlaps = 同时持有同一个 key 的客户端对数。
judge-about-release = 另一个客户端已经持有锁，释放却返回 ok 的次数。
judge-about-fence = 栅栏令牌没有大于该 key 之前所有令牌的次数。
judge-about-busy = 后端不可用且无人持有该 key 时，返回 busy 或 timeout 的次数。正确的做法是报错。
judge-about-blocked = key 空闲、有客户端等待却无人获得它的最长时间。
judge-about-starved = 从未获得锁的客户端数。
judge-about-leftover = 工作结束两个租约之后仍留在 Redis 里的 key。
judge-about-held = key 被持有的时间占比。
judge-about-p50 = 一半的获锁，等待时间不超过此值。
judge-about-p99 = 100 次获锁中有 99 次，等待时间不超过此值。
judge-about-ratio = 等待时间的第 99 百分位数除以公平队列中的等待时间。1 表示公平。
judge-about-jain = 各客户端获锁次数的均匀程度：1 表示均匀。
judge-about-errors = 请求锁时返回错误的次数。
judge-about-commands = 每次获得锁所用的 Redis 命令数，不含空闲服务器自身的命令。

## 故障：名称和含义
judge-name-none = 无故障
judge-name-pause = 暂停
judge-name-long-work = 业务过长
judge-name-kill-holder = 杀死持锁者
judge-name-redis-flush = 清空 Redis
judge-name-redis-restart = 重启 Redis
judge-name-redis-failover = 主从切换
judge-name-redis-slow = Redis 变慢
judge-name-redis-away = Redis 不可用
judge-name-client-kill = 连接被关闭
judge-name-script-flush = 脚本缓存清空
judge-name-evict = key 被淘汰
judge-name-session-cut = 会话切断
judge-name-partition = 网络分区
judge-name-late-grant = 授予迟到
judge-name-clock-jump = 时钟跳变
judge-name-slow-commit = 提交缓慢
judge-name-cancel = 请求取消

judge-fault-none = 没有故障，只有负载。
judge-fault-pause = 持锁者在读与写之间被暂停 2.5 个租约，然后继续。
judge-fault-long-work = 处理时间比租约长。
judge-fault-kill-holder = 持锁者的进程在读与写之间被杀死。
judge-fault-redis-flush = Redis 丢失所有 key。持锁者继续工作半个租约，让别人有机会拿到锁。
judge-fault-redis-restart = Redis 重启后为空。持锁者继续工作半个租约。
judge-fault-redis-failover = 主节点被杀死，落后的从节点升为主节点。持锁者继续工作半个租约。
judge-fault-redis-slow = 与 Redis 之间的每条消息延迟 200 ms。
judge-fault-redis-away = Redis 有 5 秒没有响应。
judge-fault-client-kill = Redis 关闭所有连接：负载中二十次，然后在有客户端持锁时再一次。
judge-fault-script-flush = Redis 丢弃脚本缓存：负载中二十次，然后在有客户端持锁时再一次。
judge-fault-evict = Redis 达到 maxmemory，淘汰任意 key。持锁者继续工作半个租约。
judge-fault-session-cut = 持锁进程与锁所用服务器的连接被关闭。持锁者继续工作半个租约。
judge-fault-partition = 一个工作进程与锁所用的服务器断开。
judge-fault-late-grant = 服务器授予了锁，但应答在租约结束后才到达，此时锁已属于另一个客户端。
judge-fault-clock-jump = 一个进程的时钟（挂钟和单调时钟）比其他进程慢一小时，然后跳到比它们快一小时。
judge-fault-slow-commit = Postgres 提交缓慢。
judge-fault-cancel = 三分之一的加锁和释放请求在途中被取消。

## 违规
judge-violations-title = 违规
judge-violations-lead = 每种违规的前几个，以及前后的事件。w0 c3 是工作进程 0 的客户端 3。
judge-violations-none = 没有发现违规。
judge-kind-lost-update = 丢失更新
judge-kind-lost-with-fence = 检查令牌时仍丢失更新
judge-kind-overlap = 同时持锁
judge-kind-release-ok-when-lost = 错误的释放
judge-kind-early-loss = 否认持有的锁
judge-kind-early-grant = 锁被抢走
judge-kind-fence-regression = 令牌倒退
judge-kind-misreported-busy = 误报“锁被占用”
judge-kind-blocked = 阻塞
judge-kind-starved = 客户端饿死
judge-kind-leftover-key = 残留的 key
judge-swimlane = 泳道图：每个客户端一条泳道，时间从左到右
judge-swimlane-scale = 较短的间隔已拉长，较长的间隔（//）已缩短。
judge-overlap = 两者都在读与写之间

## 一条违规的说明，句末不加句号
judge-found-both-read = { $first } 和 { $second } 都读到 { $read }：{ $first } 在 { $first_at } ms 写入 { $wrote }，{ $second } 在 { $second_at } ms 也写入 { $wrote }，覆盖了当时的 { $over }；两者各取走一件，库存只体现一件
judge-found-read-twice = { $first } 两次读到 { $read }：在 { $first_at } ms 写入 { $wrote }，在 { $second_at } ms 又写入 { $wrote }，覆盖了当时的 { $over }；两次各取走一件，库存只体现一件
judge-found-both-read-undid = { $first } 和 { $second } 都读到 { $read }：{ $first } 在 { $first_at } ms 写入 { $wrote }，{ $second } 在 { $second_at } ms 也写入 { $wrote }，覆盖了当时的 { $over }，撤销了 { $undone } 件
judge-found-read-twice-undid = { $first } 两次读到 { $read }：在 { $first_at } ms 写入 { $wrote }，在 { $second_at } ms 又写入 { $wrote }，覆盖了当时的 { $over }，撤销了 { $undone } 件
judge-found-with-fence = 令牌为 { $fence } 时，{ $found }
judge-found-units = 账本里售出的件数比库存减少的件数多 { $units }
judge-found-overlap = { $first } 从 { $from } ms 到 { $until } ms 持有锁，而 { $second } 在 { $granted } ms 获得了锁：两者同时持锁 { $both } ms
judge-found-bad-release = { $first } 在 { $released } ms 释放锁，返回 ok，但 { $second } 在 { $granted } ms 已经获得锁
judge-found-early-loss = { $client } 在 { $granted } ms 获得锁，在 { $released } ms 释放，返回的却是锁已丢失，而它 { $lease } ms 的租约尚未结束
judge-found-early-grant = { $first } 在 { $from } ms 获得锁，持有到 { $until } ms，而 { $second } 在 { $granted } ms 就获得了锁，此时前者 { $lease } ms 的租约尚未结束：有一次释放把它的锁删掉了
judge-found-fence-back = { $later } 在 { $later_at } ms 获得锁，令牌为 { $later_fence }，而此前 { $before } 在 { $before_at } ms 获得锁时，令牌为 { $before_fence }
judge-found-false-busy = { $client } 在 { $asked } ms 请求锁，在 { $answered } ms 得到 { $answer }，而当时 Redis 不可用，也没有客户端持有锁：应该返回 error
judge-found-blocked = 从 { $from } ms 起，有 { $blocked } ms 没有客户端获得锁，尽管无人持有它；TTL 为 { $ttl } ms
judge-found-blocked-to-end = 从 { $from } ms 起直到工作结束，有 { $blocked } ms 没有客户端获得锁，尽管无人持有它；TTL 为 { $ttl } ms
judge-found-starved = { $clients } 个客户端中有 { $starved } 个从未获得锁，而锁共授予了 { $grants } 次：{ $names }
judge-found-keys-left = 工作结束 { $after } ms 后，Redis 里残留 { $keys } 个 key（没有故障时不会残留）：{ $names }
judge-found-more = { $names }，另有 { $more } 个

## 故障未运行的原因
judge-why-no-cancel = 适配器没有 `cancel`
judge-why-no-holder = 工作进程 { $worker } 的客户端都没有获得锁，因此没有持锁者可以施加故障
judge-why-no-grant = 没有客户端获得锁，因此没有任何更改
judge-why-no-faketime = 没有安装 libfaketime
judge-why-go = { $program } 是 Go 程序，libfaketime 对它不起作用
judge-why-not-loaded = { $program } 没有加载 libfaketime
judge-why-fails = 适配器在 libfaketime 下出错：{ $error }
judge-why-crippled = 适配器在 libfaketime 下几乎无法工作：只获锁 { $grants } 次

# Of `holdfast judge service`: what two requests show.
service-found-no-check = 没有检查：库存 { $opening } 件，卖出 { $sold } 件。下单时没有任何一步拒绝不存在的货，写入语句也没有条件
service-found-read-then-write = 先读后写：两个请求都在对方写入之前读了库存，又各自写入自己算出的值。库存 { $opening } 件，卖出 { $sold } 件，一次写入覆盖了另一次
service-found-check-then-decrement = 先检查，再做相对扣减：两个请求都在对方取走之前看到最后一件，然后各减一件。库存 { $opening } 件，卖出 { $sold } 件
service-found-check-then-insert = 先计数，再插入：两个请求都在对方加入自己的订单之前数了已售的件数。库存 { $opening } 件，卖出 { $sold } 件
service-found-check-elsewhere = 检查在另一个事务里：两个请求都看到最后一件，又在之后的事务里各取一件，没有再检查。库存 { $opening } 件，卖出 { $sold } 件
service-found-order-without-unit = 订单没有取到货：库存 { $opening } 件，接受了 { $sold } 个订单，库存只写入了一次。前一个订单取走了货，没有拦住另一个订单
service-found-two-transactions = 两个事务：库存和订单不是一起写入的，故障正好发生在两者之间
service-found-released-before-commit = 提交前就释放了锁：前一个请求的事务还没有提交，后一个请求就获得了锁并读了库存
service-found-lease-outlived = 超过租约：一个请求的工作时间比锁的租约长，期间另一个请求获得了锁，之后前者又写入了先前算出的值
service-found-key-not-unique = 键不唯一：两个请求用同一个键，都没有在账上找到它，于是各写入一个订单
service-found-unknown = 库存 { $opening } 件，卖出 { $sold } 件。这些语句里没有已知的错误：检查可能在函数里，或在数据库之外
service-why-no-key = 订单里没有 { "{key}" }，无法作为同一个订单再次发送
service-why-program = 买家是一个程序，判定程序无法切断它的连接
service-why-attached = 服务已经在运行：它的进程和连接不归判定程序管
service-why-no-table = 判定程序不知道 Postgres 里哪个表存放库存
service-why-no-waiter = 没有订单等待商品所在的行：请在 [books] row 里写出订单要写入的行
service-why-no-strike = 没有看到读写 { $tables } 的语句，也没有提交它的语句
service-why-found-unstruck = 它的故障没有施加到任何语句上。发现的问题没有故障也会出现：请看 none
service-why-no-commit = 没有看到写入 { $tables } 的事务发出 COMMIT
service-why-no-redis = 服务没有向判定程序自己的 Redis 发送命令，判定程序不碰别的 Redis
service-why-no-row = 无法锁住商品所在的行（{ $error }）：请在 [books] row 里写出
service-why-nothing-sold = 没有卖出任何一件：{ $error }
service-why-one-instance = 两个请求各需要一个实例，而这里只有一个
service-why-one-by-one = 没有两个订单同时在服务里：买家的程序，或服务本身，逐个处理订单
service-why-no-schedule = 没有一种顺序走到最后并卖出商品：两个订单都没有继续，或者都失败了
service-why-all-sold-out = 没有卖出任何一件：还有库存，每个订单的应答却都是“售罄”
