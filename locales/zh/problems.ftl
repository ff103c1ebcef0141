# Problem types: what their pages and the refused pages say.
problem-unknown-outcome = 请先查看你的订单：修改可能已经完成。重复提交同一个表单是安全的，只会执行一次。
problem-sold-out-detail = 要购买 { $requested } 件 { $sku }，只剩 { $available } 件。
problem-price-changed-detail = 现在要 { $total_cents } 分，预期是 { $expected_cents } 分
problem-price-changed-detail-page = 页面上的总价为 { $expected }，现在为 { $total }。
problem-limit-reached-detail = { $sku } 每人限购 { $limit } 件：你已有 { $already } 件，还要购买 { $requested } 件。
problem-insufficient-funds-detail = 应付 { $needed_cents } 分，{ $account ->
    [lab] 实验室账户里有 { $balance_cents } 分，只用于支付实验室商品；退掉一个实验室订单，可以拿回它的价款
   *[shop] 账户里有 { $balance_cents } 分
 }
problem-insufficient-funds-detail-page = 应付 { $needed }，余额 { $balance }。
problem-unsent-title = 尚未保存
problem-unsent = 提交这份表单时会话已经结束，没有做任何修改。
problem-unsent-advice = 你填写的内容在下面，请检查后重新提交。
problem-opened-by-title = 由 { $name } 打开
problem-opened-by = 这份表单由 { $name } 打开，可能已经提交过。这次没有做任何修改。
problem-opened-by-advice = 请先查看下面最近的修改。要以你的名义执行，请重新提交。
problem-basket-title = 购物车已变动
problem-basket-detail = 购物车的内容与那个页面显示的已经不同，因此没有下单。
problem-basket-empty = 现在是空的。
problem-basket-empty-advice = 如果已经下单，订单列在“我的订单”里。
problem-basket-link = 我的订单
problem-basket-other = 现在的内容显示在下面。
problem-basket-other-advice = 请核对购物车，再下单。
problem-back = 返回刚才的页面
problem-heading = 错误说明
problem-lead = 商店的每个错误响应都使用下列名称之一；每种错误都有对应的 HTTP 状态码和处理办法。
problem-advice = 怎么办

# What is wrong with a request: the `detail` of problems, in English for programs.
problem-field = { $field }：{ $why }
problem-range = { $least } 到 { $most }
problem-number = 一个数，{ $least } 到 { $most }
problem-no-number = 不是数字
problem-one-of = 应为其中之一：{ $names }
problem-pause-of-two = 只适用于两位买家的抢购
problem-every-or-one-of = 应为 every，或其中之一：{ $names }
problem-valid-values = 有效值：{ $values }
problem-length = { $least } 到 { $most } 个字符
problem-line = 一行，1 到 { $most } 个字符
problem-missing-field = 缺少此项
problem-object-expected = 应为一个 JSON 对象
problem-ascii-only = 只能用可见的 ASCII 字符
problem-unreadable-body = 无法读取请求体：{ $error }
problem-not-json = 请求体不是 JSON：{ $error }
problem-send-json = 请发送 UTF-8 的 application/json
problem-send-form = 请发送 application/x-www-form-urlencoded
problem-compressed-body = 请发送未压缩的请求体
problem-body-length = 最多 { $most } 字节
problem-late-body = 请求体没有在 { $seconds } 秒内到齐
problem-late-head = 请求行和请求头没有在 5 秒内到齐
problem-large-head = 请求行和请求头太大：最多 128 KiB、96 个请求头
problem-invalid-head = 请求行或某个请求头不是有效的 HTTP/1.1；请改正后在新连接上发送
problem-unread-request = 无法读取请求；请在新连接上重新发送
problem-wrong-method = { $path } 不接受 { $method }，接受的是 { $allowed }
problem-host = “{ $host }”不是本商店的主机名
problem-rate-limit = 限额“{ $name }”：一次最多 { $burst } 个，之后{ $period ->
    [second] 每秒
    [minute] 每分钟
   *[hour] 每小时
 } { $permits } 个
problem-send-key = 请在请求头 Idempotency-Key 里发送一个新的 UUID
problem-different-keys = 请求里有不同的幂等键（Idempotency-Key、?token=）；请只发一个
problem-key-in-flight = 带有这个键的请求还在执行
problem-key-mismatch = 这个键之前发送过不同的内容
problem-key-used = 这个键在一天多以前已用过

problem-session-over = 没有会话，或会话已经结束
problem-sign-in-wrong = 用户名或密码不正确
problem-sign-in-disabled = 该用户已被管理员停用
problem-admin-only = 只有管理员可以这样做
problem-foreign-form = 表单不是来自本会话的页面；请重新载入页面后再发送
problem-csrf-header = 浏览器的请求必须带上 { $header }
problem-no-session-id = 不是有效的会话 id
problem-wrong-password = 当前密码不正确
problem-user-name = 1 到 { $most } 个字符：a–z、0–9、点、短横线和下划线；不区分大小写
problem-reserved-name = 以 { $prefix } 开头的名字留给{ $of ->
    [lab] 实验室
   *[class] 学生
 }
problem-user-exists = 用户 { $user } 已存在
problem-own-account = 这是你自己的账户：请像其他用户一样修改自己的密码和会话

problem-line-count = 1 到 { $most } 行
problem-costs-too-much = 总价太高
problem-limit = 1 到 { $most }，或 null
problem-description = 最多 { $most } 个字符和换行（\n）
problem-changed-since = 现在是 { $now }：你读取之后有人改过
problem-delta = 必须是 −{ $most } 到 { $most } 的整数，不能是 0
problem-reserved-reason = “{ $reason }”是商店自用的保留词；请换一个
problem-reason-missing = 这是其他用户的订单：请说明原因，写入操作记录
problem-reason-of-admin = 只有管理员填写原因，原因写入操作记录
problem-item-exists = 商品 { $sku } 已存在
problem-sku-of-lab = “lab-”加 32 位十六进制数字是实验室商品的名称：请换一个
problem-stock-above = 库存有 { $stock } 件；最多 { $most } 件
problem-stock-below = 库存只有 { $stock } 件
problem-balance-above = 账户余额最多 { $most }
problem-too-many-unpaid = 你已有 { $max } 个未付款的订单，达到上限；请付款或取消一个，或者等一个超时
problem-order-expired-detail = 订单已不能付款；没有扣款
problem-busy-basket = 其他请求正在同时修改购物车

problem-sold-in-units = 该商品每件一行：请用 Holdfast-Lock: units 下单
problem-not-in-units = Holdfast-Lock: units 只用于每件一行的商品。这种商品由管理员用 POST /api/lab/items 和 in_units 创建
problem-too-many-units = 每件一行的商品最多 { $most } 件
problem-partly-in-units = { $sku } 不是每件一行，其他商品是：请分成两个订单
problem-units-kept = 每件一行的商品，件数和设置在创建后不能改变
problem-unit-count = 每件一行时，1 到 { $most }
problem-no-limit-in-units = 每件一行的商品没有限购
problem-refund-in-units = 只有由 Postgres 隔离付款时，每件一行的商品的订单才能退款，而本商店的锁是 { $strategy }
problem-not-pre-deducted = { $sku } 是商店自己的商品，不能用 pre-deduct 出售
problem-lab-and-shop = 一个订单要么全是实验室商品，要么全是商店自己的商品：{ $lab } 是实验室商品，{ $own } 是商店自己的；请分成两个订单
problem-kept-to-lab = 这只用于实验室商品，而 { $sku } 是商店自己的：{ $why }
problem-kept-headers = 只有管理员能对它发送实验室请求头（Holdfast-*）
problem-kept-strategy = 使用 Holdfast-Lock: { $strategy } 或 Holdfast-Ttl-Ms，而同时的其他请求使用 { $beside }，可能丢失销售。实验室商品由管理员用 POST /api/lab/items 创建
problem-kept-window = 未付款时，它的库存最多预留 { $max_ms } 毫秒（Holdfast-Pay-Within-Ms）
problem-no-redlock = 这里没有配置 { $name }；它需要 REDLOCK_URLS
problem-no-such-wait = { $strategy } 没有 { $name } 这种等待方式
problem-no-lab-header = 实验室没有这个请求头；它有 { $names }
problem-no-effect-with-try = 与 Holdfast-Wait: try 一起时不起作用

problem-lab-off = 本商店没有开启实验室；启动时加上 --lab on 才有
problem-lab-readers = 访客可以查看这个实验室；只有管理员可以运行
problem-lab-headers-off = Holdfast-* 请求头属于实验室，而实验室没有开启
problem-lab-headers-in-class = Holdfast-* 请求头会暂停或破坏请求：在班级里只能由教师使用
problem-not-paused = 这里没有被暂停的请求 { $id }
problem-not-beside = 应为与 { $strategy } 并存时仍然有效的策略
problem-pause-or-rest = 不能与 rest_ms 一起使用
problem-no-failed-expiry = 没有取消失败的未付款订单 { $order }
problem-jobs-off = 本副本不执行任务（HOLDFAST_JOBS）
problem-queued-runs = 已有 { $runs } 次运行在排队
problem-open-runs = 你有 { $runs } 次运行还没有结束
problem-no-runner = 这家商店不是由 `holdfast up` 启动的，而课程和自定义负载需要暂停、杀死它的副本。请运行 `holdfast up`，或用 `holdfast lesson NAME` 运行一课。实验室请求头、实验室商品和 load/ 在这里也能用
problem-run-of-lesson = 应为某一课已完成的运行
problem-run-without-result = 应为已显示结果的运行
problem-no-result = 抢购 { $race } 还没有结果
problem-large-file = 文件最大 4 MiB；请选择由实验室或 `holdfast judge --json` 写出的文件
problem-late-file = 文件没有在 { $seconds } 秒内到齐
problem-other-files = 正在读取其他文件；请过几秒再试
problem-choose-one = 请选择一项
problem-free-or-remove = free 或 remove
problem-unplayable-level = 这一关不能玩
problem-two-or-three = 2 或 3
problem-who-steps = 订单的字母、expire 或 undo

problem-lock-held = 另一个请求持有锁
problem-lock-waited = 等了 { $ms } 毫秒
problem-lock-lost-detail = 写入之前锁已丢失；没有写入
problem-row-locked = Postgres 里有一行一直被锁住；没有做任何修改
problem-late-request = 请求用时超过 { $seconds } 秒
problem-no-response = 没有响应：{ $what }；请重新发送请求，带幂等键的用同一个键
component-postgres = Postgres
component-redis = Redis
component-batch-task = 执行批处理的任务
component-command-task = 执行命令的任务
component-lease-holder = 持有该商品租约的副本
problem-no-writes = Postgres 现在不接受写入；没有写入
problem-postgres-refuses = Postgres 拒绝商店所用的用户；没有写入
problem-replica-stops = 本副本处理完手里的请求就停止；请使用其他副本
problem-event-streams = 本副本的事件流已达 { $streams } 个，或者发往你的地址的已达单个地址的上限
problem-other-pages = 正在生成其他同类页面；请过几秒再试
problem-page-length = 这个页面会超过 { $max_bytes } 字节
problem-undrawn-page = 无法生成页面
problem-unset-cookie = 无法设置 cookie
problem-not-set-up = 网站尚未配置好
problem-bug = 详情见商店的日志
problem-missing-asset = 没有 { $name }

problem-invalid-request-title = 请求无效
problem-invalid-request-meaning = 有字段缺失、拼写错误或超出范围，或者该地址不支持这种方法或内容类型。没有做任何修改。
problem-invalid-request-advice = 请看 `detail`；若有 `errors`，其中列出了每个无效字段及其要求。更正后重新发送。
problem-invalid-request-page-advice = 请返回，更正输入后重新提交表单。

problem-unauthenticated-title = 未登录
problem-unauthenticated-meaning = 请求没有会话，会话已过期，或者用户名或密码不正确。
problem-unauthenticated-advice = 从 POST /api/sessions 获取令牌，以 `Authorization: Bearer …` 发送。
problem-unauthenticated-page-advice = 请登录，登录后会回到本页。
problem-unauthenticated-link = 登录

problem-forbidden-title = 没有权限
problem-forbidden-meaning = 你的账户不能执行此操作；或者这是实验室的功能，而实验室已关闭。
problem-forbidden-advice = 请用有权限的账户登录，或者在启动商店时打开实验室。
problem-forbidden-page-advice = 如果你刚提交了表单，请刷新表单所在的页面后重试。否则请用有权限的账户登录。
problem-forbidden-link = 用其他账户登录

problem-missing-page = 没有 { $path } 这个页面
problem-missing-item = 没有商品 { $sku }
problem-item-hidden = { $sku } 已下架
problem-missing-account = 你没有账户
problem-missing-order = 你没有订单 { $order }
problem-missing-session = 你没有会话 { $id }
problem-missing-user = 没有用户 { $name }
problem-missing-race = 没有编号为 { $id } 的抢购
problem-missing-run = 没有编号为 { $id } 的运行
problem-missing-lesson = 没有名为 { $name } 的课程
problem-missing-judgement = 没有名为 { $name } 的评测
problem-missing-problem = 没有名为 { $name } 的错误类型
problem-missing-game = 这一局已经结束
problem-missing-game-page = 这一局已经结束：它已被另一局取代，或者已过十分钟。请在 /lab/scheduler 重新开始
problem-not-found-title = 未找到
problem-not-found-meaning = 它不存在，或者属于其他用户。商店不会说明是哪一种情况。
problem-not-found-advice = 请检查地址、名称或编号。
problem-not-found-link = 返回首页

problem-exists-title = 已存在
problem-exists-meaning = 名称已被占用，或者实验室有运行尚未结束。
problem-exists-advice = 请换一个名称，或者等待运行结束。

problem-sold-out-title = 库存不足
problem-sold-out-meaning = 剩余数量少于要购买的数量。整个订单都没有提交，其他商品也没有买下。
problem-sold-out-advice = 请减少数量，或者等待补货。可以用同一个幂等键重试。
problem-sold-out-page-advice = 请减少数量，或者从购物车中移除该商品。

problem-price-changed-title = 价格已变动
problem-price-changed-meaning = 订单的总价高于顾客同意的总价，因此没有下单。总价降低时，直接按较低的总价收取。
problem-price-changed-advice = 请把 `total_cents` 告诉顾客；顾客接受后，把它作为 `expected_total_cents` 重新发送，可以用同一个幂等键。
problem-price-changed-page-advice = 请核对下面的价格。点击按钮即按新的总价下单。

problem-limit-reached-title = 已达每人限购数量
problem-limit-reached-meaning = 库存充足，但每位顾客只能购买有限的数量；待付款和已付款订单中的商品都计算在内。整个订单都没有提交，其他商品也没有买下。
problem-limit-reached-advice = 最多再买 `limit` − `already` 件，或者取消一个含该商品的订单。可以用同一个幂等键重试。
problem-limit-reached-page-advice = 请减少数量或从购物车中移除该商品，或者取消一个含该商品的订单。
problem-limit-reached-link = 我的订单

problem-insufficient-funds-title = 余额不足
problem-insufficient-funds-meaning = 余额小于应付金额。没有扣款。
problem-insufficient-funds-advice = 请先充值，再支付。可以用同一个幂等键重试。
problem-insufficient-funds-page-advice = 请先充值，再支付。
problem-insufficient-funds-link = 充值

problem-order-state-detail = 不能{ $action ->
    [pay] 支付
    [cancel] 取消
   *[refund] 退款
}：该订单{ $status ->
    [pending] 尚未付款
    [paid] 已付款
    [refunded] 已退款
   *[cancelled] 已取消
}
problem-order-state-title = 订单状态不允许此操作
problem-order-state-meaning = 一个订单只能付款或取消一次，付款后只能退款一次。
problem-order-state-advice = 请查询订单的当前状态。
problem-order-state-page-advice = 订单的当前状态如下。

problem-order-expired-title = 订单超时未付款
problem-order-expired-meaning = 订单的商品预留到 `expires_at` 为止，现已重新上架，或即将上架。
problem-order-expired-advice = 请重新下单。
problem-order-expired-link = 返回首页

problem-idempotency-key-missing-title = 缺少幂等键
problem-idempotency-key-missing-meaning = 此请求会修改数据，因此必须能安全地重复发送。
problem-idempotency-key-missing-advice = 请在 `Idempotency-Key` 请求头（或 `?token=`）中发送一个新的 UUID，重试时使用同一个。

problem-idempotency-key-in-flight-title = 相同的请求正在处理
problem-idempotency-key-in-flight-meaning = 使用这个键的另一个请求尚未完成。
problem-idempotency-key-in-flight-advice = 等待 `Retry-After` 指定的时间，再发送相同的请求，你将得到它的响应。
problem-idempotency-key-in-flight-page-advice = 请稍候再次提交表单：你得到的是同一个订单，不会多出一个。

problem-idempotency-key-mismatch-title = 这个键属于另一个请求
problem-idempotency-key-mismatch-meaning = 一个键只对应一个请求：提交过的表单不能再用，返回之后也一样。
problem-idempotency-key-mismatch-advice = 在浏览器里：重新载入页面，核对内容后再提交。客户端：使用新的键。

problem-idempotency-key-used-title = 这个键在一天之前已用过
problem-idempotency-key-used-meaning = 它的请求已经执行，响应不再保存。
problem-idempotency-key-used-advice = 请查询 `order_id` 指定的订单；新的订单请使用新的键。

problem-lock-busy-title = 锁被占用
problem-lock-busy-meaning = 另一个请求持有锁，而本请求不等待。`holder_process`、`holder_since` 和 `holder_fence` 说明持锁者（如果已知）。
problem-lock-busy-advice = 请在 `retry_after_ms` 之后重试。
problem-lock-busy-page-advice = 请稍候再试。同一用户同一时刻只能提交一个订单，所以双击只产生一个订单。

problem-lock-timeout-title = 等锁超时
problem-lock-timeout-meaning = 锁被占用的时间超过了请求能等待的时间。没有做任何修改。`holder_process`、`holder_since` 和 `holder_fence` 说明最后的持锁者（如果已知）。
problem-lock-timeout-advice = 请在 `Retry-After` 之后用同一个幂等键重试。
problem-lock-timeout-page-advice = 请稍候再试。

problem-lock-lost-title = 锁已丢失
problem-lock-lost-meaning = 业务完成之前租约已过期，所以没有写入。
problem-lock-lost-advice = 请用同一个幂等键重试。
problem-lock-lost-page-advice = 请稍候再试。

problem-overloaded-title = 过载
problem-overloaded-queue = 等待的请求已经过多；没有做任何修改
problem-overloaded-connections = 到 Postgres 的连接都在使用；没有做任何修改
problem-overloaded-cancelled = Postgres 取消了一条耗时过长的语句；没有做任何修改
problem-overloaded-given-up = 在写入之前，时间已经用完；没有做任何修改
problem-overloaded-conflicts = { $attempts ->
   *[other] 尝试了 { $attempts } 次，每次都有其他修改先写入
}；没有做任何修改
problem-lab-connections = 对实验室商品的请求占用了实验室可同时使用的全部连接，或者你的请求占用的连接已达到单个用户的上限；没有做任何修改
problem-lab-pauses = 此处已暂停的实验室请求达到了上限，或者你的暂停请求达到了单个用户的上限；没有做任何修改
problem-overloaded-meaning = 商店要做的事超出了它的能力：等待的请求过多，或者对同一商品或余额的其他修改每次都先写入。本请求没有做任何修改。之前使用同一个幂等键的请求可能已经执行。
problem-overloaded-advice = 请在 `Retry-After` 之后用同一个幂等键重试：已执行的请求不会再执行一次。
problem-overloaded-page-advice = 请稍候再试。

problem-unavailable-title = Postgres 或 Redis 不可用
problem-unavailable-meaning = 没有它们，商店无法保证一件商品只卖一次，所以暂停销售。若 `outcome` 为 `unknown`，修改可能已经完成。
problem-unavailable-advice = 请在 `Retry-After` 之后用同一个幂等键重试，你将得到真实的结果。
problem-unavailable-detail-page = 没有响应：{ $what }
problem-unavailable-page-advice = 请稍候再试。重复提交同一个表单是安全的。
problem-session-ended = 一个会话空闲过久而被 Postgres 终止，或者一次迁移修改了某个表；没有做任何修改
problem-redis-refused = Redis 拒绝了请求：{ $code ->
    [NOAUTH] NOAUTH（它要求密码）
    [WRONGPASS] WRONGPASS（它不接受该用户名和密码）
    [NOPERM] NOPERM（该用户缺少权限）
    [NODB] 它没有该编号的数据库
    [NOPRIMARY] 哨兵不认识主节点
    [NOTREDIS] 该地址上的服务器不是 Redis
    [MOVED] MOVED（它是 Cluster 的一个节点）
    [CROSSSLOT] CROSSSLOT（它是一个 Cluster）
    [READONLY] READONLY（它是只读的从节点）
    [MASTERDOWN] MASTERDOWN（它是没有主节点的从节点）
    [OOM] OOM（它的内存已满）
    [NOREPLICAS] NOREPLICAS（它的从节点太少）
    [MISCONF] MISCONF（它无法保存数据）
    [WRONGTYPE] WRONGTYPE（其他程序在使用它的 key）
    [LOADING] LOADING（它正在加载数据）
    [CLUSTERDOWN] CLUSTERDOWN（Cluster 的一部分已停止）
   *[other] 它的错误是 { $code }
 }

problem-shutting-down-title = 此副本正在停机
problem-shutting-down-meaning = 它还会接收几秒钟的请求，处理完后停止。只有 `/readyz` 会返回这个错误。
problem-shutting-down-advice = 请把请求发送到其他副本。

problem-too-many-requests-title = 请求过于频繁
problem-too-many-requests-meaning = 请求频率超过了上限。上限针对一个用户、一个地址，或者同一用户名的登录尝试；`limit` 说明是哪一种。没有做任何修改。
problem-too-many-requests-advice = 等待 `Retry-After` 指定的时间（`retry_after_ms` 更精确）再重试；下单请用同一个幂等键。每个响应中的 `RateLimit` 说明还剩多少次请求。
problem-too-many-requests-page-advice = 请稍候再试。

problem-request-timeout-title = 请求未及时到达
problem-request-timeout-meaning = 请求体到达太慢或没有到达。没有做任何修改，连接已关闭。
problem-request-timeout-advice = 请用同一个幂等键重新发送。
problem-request-timeout-page-advice = 请检查网络连接，再次提交表单。

problem-wrong-host-title = 不是本商店的地址
problem-wrong-host-meaning = 请求中的主机名不属于本商店。没有做任何修改。
problem-wrong-host-advice = 请使用 `HOLDFAST_PUBLIC_HOSTS` 中的地址，或者把这个地址加进去。
problem-wrong-host-page-advice = 请用商店自己的地址打开。运维人员可以把这个地址加入 HOLDFAST_PUBLIC_HOSTS。

problem-payload-too-large-title = 请求过大
problem-payload-too-large-meaning = 一次请求最多 64 KiB 数据，表单也一样；给实验室的文件最多 4 MiB。没有做任何修改。
problem-payload-too-large-advice = 请减少发送的数据。
problem-payload-too-large-page-advice = 请用浏览器的后退按钮回到表单，你填写的内容还在，改短后再提交，或者换一个小一点的文件。

problem-internal-error-title = 内部错误
problem-internal-error-meaning = 商店程序有缺陷。没有做任何修改。
problem-internal-error-advice = 请用同一个幂等键重试。若再次失败，请报告 `X-Request-Id`。
