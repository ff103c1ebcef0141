# The pages for admins: audit, locks, jobs.
admin-audit-sound = 账目相符：{ $checks } 项检查全部通过。
admin-audit-unsound = 账目不符：{ $checks } 项检查中有 { $failed } 项未通过。
admin-audit-holds = 通过
admin-audit-broken = 未通过
admin-audit-notes = 备注
admin-audit-note-checked = 检查时间 { $at } UTC：{ $items } 种商品，{ $orders } 个订单，{ $entries } 条账本记录
admin-audit-as-of = 检查的时刻：
admin-audit-read = 读取了 { $items } 种商品、{ $orders } 个订单、{ $entries } 条账本记录
admin-audit-note-apart = 单独统计：实验室商品 { $items } 种，其账本中 { $forks } 处分叉；实验室账户 { $accounts } 个
admin-audit-note-locks = Redis：持有 { $held } 把锁，其中 { $forever } 把没有过期时间（幂等键上的锁在请求结束后还会保留几秒）
admin-audit-note-without-redis = Redis 未计入：{ $error }
admin-audit-hint = 所有检查都读取同一个 repeatable-read 快照，因此即使有负载，结果也准确反映同一时刻。命令行：`holdfast audit`
admin-audit-running = 正在审计：已完成 { $total } 项检查中的 { $done } 项。当前检查：`{ $check }`
admin-audit-reload = 结果出来之前，本页会自动刷新。

admin-locks-table = 被持有的锁
admin-locks-none = 当前没有被持有的锁。
admin-locks-lock = 锁
admin-locks-holder = 持锁者
admin-locks-since = 开始时间
admin-locks-fence = 栅栏令牌
admin-locks-remaining = 剩余租约
admin-locks-waiting = 等待数
admin-locks-unknown = 未知
admin-locks-no-expiry = 永不过期
admin-locks-no-queue = 无队列
admin-locks-hint = Redis 中的当前状态。“持锁者”是副本。“等待数”是锁的队列中的副本数；同一副本内等待的请求算作一个。没有栅栏令牌的锁没有队列。
admin-refresh = 刷新

admin-jobs-lead = 商店按计划执行的任务。每次到点，所有副本都会尝试执行；Postgres 为每个任务的每个计划时间只存一行，只放行其中一个。这一行带有租约：副本崩溃后，由另一个副本接手，作为下一次尝试。
admin-jobs-off = 本副本不执行任务（`HOLDFAST_JOBS=off`），其他副本可能会执行。
admin-jobs-failed = 已失败 { $attempts } 次。
admin-jobs-last-error = 最近的错误
admin-jobs-next-attempt = 下次尝试
admin-jobs-retry = 立即重试
admin-jobs-schedule = 计划
admin-jobs-every = 每 { $minutes } 分钟
admin-jobs-schedule-lab = 由实验室启动
admin-jobs-next = 下次执行
admin-jobs-last = 上次执行
admin-jobs-never = 从未执行
admin-jobs-result = 结果
admin-jobs-replica = 副本
admin-jobs-running = 执行中
admin-jobs-done = 已完成
admin-jobs-failed-state = 失败
admin-jobs-attempt = 第 { $attempt } 次尝试
admin-jobs-job = 任务
admin-jobs-clock = 时间以 Postgres 的时钟为准，由它决定任务何时到期。失败的执行会重试，间隔逐渐加长，最长五分钟。
admin-job-audit = 相互核对账本、订单和账户，并保存结果。
admin-job-purge = 删除限期保存的数据：保存的响应留一天，会话留到过期，执行记录和实验室商品留一个月。
admin-job-lab-tick = 与商店无关。课程“只执行一次的定时任务”用它统计一次计划执行了几次。

admin-expiry-title = 未付款订单
admin-expiry-about = 未及时付款的订单会被取消，商品退回库存。任何副本都可以执行，而 Postgres 中的订单状态保证只执行一次。
admin-expiry-due = 已到期
admin-expiry-failed = 订单 { $order }：取消失败
admin-expiry-parked = 订单 { $order } 已搁置
admin-expiry-parked-advice = 它的商品仍被预留。系统不会自动重试：请先查明原因。
admin-expiry-failed-at = 最近一次尝试

admin-result-sound = 账目相符：{ $checks } 项检查全部通过
admin-result-unsound = 账目不符：{ $checks } 项检查中 { $failed } 项未通过：{ $names }
admin-result-nothing = 无事可做
admin-result-deleted =
    { $number ->
       *[other] 已删除 { $count } 条记录
    }
admin-result-rest = 其余留给下次执行

## 审计的各项检查：规则
audit-check-stock-drift = 每种商品的库存等于其账本之和
audit-check-stock-oversold = 没有商品的售出量超过其库存
audit-check-stock-chain = 每条记录都从上一条记录结束时的值开始，栅栏令牌不低于之前的，seq 更大
audit-check-stock-forks = 没有两条记录由同一次读取算出
audit-check-stock-opening = 每个账本都以一条期初记录开始
audit-check-running-sums = 每种商品的累计数等于其账本和订单之和
audit-check-row-versions = 每件商品和每个账户的版本高于其账本中的版本，栅栏令牌不低于账本中的
audit-check-order-lines = 每个订单行只扣减一次库存，且由它所指的记录扣减；订单取消或退款时只归还一次
audit-check-lines-counted = 订单待付款或已付款期间，每个订单行都计入其买家的购买数
audit-check-customer-limits = 没有用户购买某种商品超过当时的限购数量
audit-check-unit-entries = 只有实验室的商品才有逐件的记录
audit-check-stock-entries = 每条记录都有对应的商品；若记录指向订单，则有该订单的订单行；每行只有一次售出
audit-check-order-references = 每个订单都有对应的用户
audit-check-line-references = 每个订单行都有对应的订单和商品
audit-check-order-totals = 每个订单的总额等于其各行之和
audit-check-payments = 每个订单恰好有其状态所要求的付款和退款，记在买家的账户上；实验室商品的订单记在其实验室账户上
audit-check-balance-entries = 每条记录都是该用户某个订单的付款或退款，或者实验室账户开户、充值、新用户赠金
audit-check-counted-apart = 只有实验室的商品和账户单独统计
audit-check-balance-drift = 每个账户的余额等于其账本之和
audit-check-balance-chain = 每条记录都从上一条记录结束时的值开始，栅栏令牌不低于之前的，seq 更大
audit-check-balance-forks = 没有两条记录由同一次读取算出
audit-check-top-ups = 每笔充值都有记录，每条充值记录都有对应的充值
audit-check-money-conserved = 余额加支出等于存入的金额
audit-check-nothing-negative = 没有低于零的库存、余额、数量或总额
audit-check-key-records = 每个订单都有其幂等键的记录
audit-check-stored-responses = 每条幂等键记录的标识正确，并对应其订单或充值
audit-check-nicknames = 每个昵称都以用于比较的形式存储，且只属于一名学生
audit-check-sequences = 每个序列的下一个编号都大于其表中已有的编号
